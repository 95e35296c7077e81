//! Framehop as a floor: unwinds the main thread with a warm cache and bounded stack reads, and
//! records nothing.

use std::hint::black_box;
use std::mem::{self, MaybeUninit};
use std::ops::Range;
use std::ptr;
use std::slice;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

use framehop::{
    CacheNative, ExplicitModuleSectionInfo, Module, MustNotAllocateDuringUnwind, UnwindRegsNative,
    Unwinder as _, UnwinderNative,
};

use super::{Recorder, Tally};
use crate::Result;
use crate::options::Options;

struct State {
    unwinder: UnwinderNative<&'static [u8], MustNotAllocateDuringUnwind>,
    cache: CacheNative<MustNotAllocateDuringUnwind>,
    stack_end: u64,
    /// The frames that there are at least.
    depth: u64,
}

static STATE: AtomicPtr<State> = AtomicPtr::new(ptr::null_mut());
static SIGNALS: AtomicU64 = AtomicU64::new(0);

pub struct Recording(());

impl Recorder for Recording {
    fn start(options: &Options) -> Result<Self> {
        let mut unwinder = UnwinderNative::new();
        for module in modules() {
            unwinder.add_module(module);
        }
        let state = Box::new(State {
            unwinder,
            cache: CacheNative::new_in(),
            stack_end: stack_end()?,
            depth: options.depth,
        });
        // Never freed: the handler may be running in it.
        STATE.store(Box::leak(state), Ordering::Release);
        // SAFETY: all zeroes are a valid sigaction: the default action, no flags, an empty mask.
        let mut action: libc::sigaction = unsafe { mem::zeroed() };
        action.sa_sigaction = on_signal as Handler as libc::sighandler_t;
        // Not SA_ONSTACK: framehop keeps gimli's unwind context on the stack for an address that
        // its cache does not hold, and that is more than the 8 KiB which Rust's standard library
        // gives a thread for signals.
        action.sa_flags = libc::SA_SIGINFO | libc::SA_RESTART;
        // SAFETY: the action is complete, and the handler neither allocates nor locks.
        match unsafe { libc::sigaction(libc::SIGPROF, &action, ptr::null_mut()) } {
            0 => Ok(Self(())),
            _ => Err(std::io::Error::last_os_error().into()),
        }
    }

    fn stop(self) -> Result<Tally> {
        Ok(Tally::of_samples(SIGNALS.load(Ordering::Relaxed)))
    }

    fn write(self, _options: &Options) -> Result<Tally> {
        Err("framehop alone records nothing to write".into())
    }
}

type Handler = extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void);

extern "C" fn on_signal(_: libc::c_int, _: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: SIGPROF is raised by the main thread alone and is blocked while it is handled, so
    // this is the only reference to the state, which is never freed.
    let Some(state) = (unsafe { STATE.load(Ordering::Acquire).as_mut() }) else {
        return;
    };
    // SAFETY: SA_SIGINFO passes a ucontext_t.
    let (pc, sp, registers) = registers(unsafe { &*context.cast::<libc::ucontext_t>() });
    let readable = sp..state.stack_end - 8;
    let mut read_stack = |address: u64| {
        if readable.contains(&address) && address.is_multiple_of(8) {
            // SAFETY: the address is aligned, and lies between this thread's stack pointer and the
            // end of its stack.
            Ok(unsafe { *(address as *const u64) })
        } else {
            Err(())
        }
    };
    let mut frames = state
        .unwinder
        .iter_frames(pc, registers, &mut state.cache, &mut read_stack);
    let mut depth = 0_u64;
    while let Ok(Some(frame)) = frames.next() {
        black_box(frame.address());
        depth += 1;
    }
    // A sample counts if its stack is whole: an unwinder that gives up at once is fast.
    SIGNALS.fetch_add(u64::from(depth > state.depth), Ordering::Relaxed);
}

#[cfg(target_arch = "x86_64")]
fn registers(context: &libc::ucontext_t) -> (u64, u64, UnwindRegsNative) {
    let register = |number: libc::c_int| context.uc_mcontext.gregs[number as usize] as u64;
    let (pc, sp) = (register(libc::REG_RIP), register(libc::REG_RSP));
    (
        pc,
        sp,
        UnwindRegsNative::new(pc, sp, register(libc::REG_RBP)),
    )
}

#[cfg(target_arch = "aarch64")]
fn registers(context: &libc::ucontext_t) -> (u64, u64, UnwindRegsNative) {
    let machine = &context.uc_mcontext;
    (
        machine.pc,
        machine.sp,
        UnwindRegsNative::new(machine.regs[30], machine.sp, machine.regs[29]),
    )
}

fn stack_end() -> Result<u64> {
    let mut attributes = MaybeUninit::<libc::pthread_attr_t>::uninit();
    let (mut lowest, mut size) = (ptr::null_mut(), 0);
    // SAFETY: pthread_getattr_np fills in the attributes if it returns 0; only then are they read
    // and destroyed.
    let returned = unsafe {
        let mut returned = libc::pthread_getattr_np(libc::pthread_self(), attributes.as_mut_ptr());
        if returned == 0 {
            returned = libc::pthread_attr_getstack(attributes.as_ptr(), &mut lowest, &mut size);
            libc::pthread_attr_destroy(attributes.as_mut_ptr());
        }
        returned
    };
    match returned {
        0 => Ok(lowest as u64 + size as u64),
        error => Err(std::io::Error::from_raw_os_error(error).into()),
    }
}

fn modules() -> Vec<Module<&'static [u8]>> {
    let mut modules = Vec::new();
    // SAFETY: the callback gets what it is written for: the vector, which outlives the call.
    unsafe { libc::dl_iterate_phdr(Some(add_module), (&raw mut modules).cast()) };
    modules
}

unsafe extern "C" fn add_module(
    info: *mut libc::dl_phdr_info,
    _size: libc::size_t,
    modules: *mut libc::c_void,
) -> libc::c_int {
    // SAFETY: dl_iterate_phdr passes a valid info, and the vector that modules() gave it.
    let (info, modules) = unsafe { (&*info, &mut *modules.cast::<Vec<Module<&'static [u8]>>>()) };
    // SAFETY: the loader's program headers, as many as it says.
    let headers = unsafe { slice::from_raw_parts(info.dlpi_phdr, info.dlpi_phnum.into()) };
    let loads = || {
        headers
            .iter()
            .filter(|header| header.p_type == libc::PT_LOAD)
    };
    let range = |header: &libc::Elf64_Phdr| header.p_vaddr..header.p_vaddr + header.p_memsz;
    let Some(index) = headers
        .iter()
        .find(|header| header.p_type == libc::PT_GNU_EH_FRAME)
        .map(range)
    else {
        return 0;
    };
    // How long .eh_frame is, no header says. It ends before its segment does, and with a
    // terminator.
    let Some(segment) = loads().map(range).find(|load| load.contains(&index.start)) else {
        return 0;
    };
    let bytes = |svma: Range<u64>| {
        let start = (info.dlpi_addr + svma.start) as *const u8;
        // SAFETY: the range lies in a readable segment of an object that this program never
        // unloads.
        unsafe { slice::from_raw_parts(start, (svma.end - svma.start) as usize) }
    };
    // Linkers write version 1 and a pointer to .eh_frame relative to its own place, four bytes into
    // the header.
    let header = bytes(index.clone());
    if header[0] != 1 || header[1] != 0x1b {
        return 0;
    }
    let offset = i32::from_le_bytes([header[4], header[5], header[6], header[7]]);
    let eh_frame = (index.start + 4).wrapping_add_signed(offset.into());
    if !segment.contains(&eh_frame) {
        return 0;
    }
    let eh_frame = eh_frame..segment.end;
    let text = loads()
        .find(|header| header.p_flags & libc::PF_X != 0)
        .map(range);
    let end = loads().map(|header| range(header).end).max().unwrap_or(0);
    modules.push(Module::new(
        String::new(),
        info.dlpi_addr..info.dlpi_addr + end,
        info.dlpi_addr,
        ExplicitModuleSectionInfo {
            base_svma: 0,
            text: text.clone().map(bytes),
            text_svma: text,
            eh_frame: Some(bytes(eh_frame.clone())),
            eh_frame_svma: Some(eh_frame),
            eh_frame_hdr: Some(header),
            eh_frame_hdr_svma: Some(index),
            ..Default::default()
        },
    ));
    0
}
