//! Unwinding from where code was interrupted: by a signal that an instruction raises, in a leaf
//! whose caller's return is known.

use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use super::hostile::compiled;
use super::*;
use crate::sys::arch::Registers;
use crate::sys::maps::Maps;
use crate::sys::modules::{Module, loaded};
use crate::sys::thread_stack::BoundsPlace;

#[cfg(target_arch = "x86_64")]
mod code {
    pub(super) const TRAP_BYTES: i64 = 2;

    std::arch::global_asm!(
        ".globl sigprof_test_trap",
        ".type sigprof_test_trap, @function",
        "sigprof_test_trap:",
        ".cfi_startproc",
        "ud2",
        "ret",
        ".cfi_endproc",
        ".size sigprof_test_trap, . - sigprof_test_trap",
        ".globl sigprof_test_caller",
        ".globl sigprof_test_caller_after",
        ".type sigprof_test_caller, @function",
        "sigprof_test_caller:",
        ".cfi_startproc",
        "sub rsp, 8",
        ".cfi_def_cfa_offset 16",
        "call rdi",
        "sigprof_test_caller_after:",
        "add rsp, 8",
        ".cfi_def_cfa_offset 8",
        "ret",
        ".cfi_endproc",
        ".size sigprof_test_caller, . - sigprof_test_caller",
    );
}

#[cfg(target_arch = "aarch64")]
mod code {
    pub(super) const TRAP_BYTES: u64 = 4;

    // Code without unwind data lies between the two that have some, so that no more than what they
    // describe is theirs.
    std::arch::global_asm!(
        ".globl sigprof_test_trap",
        ".type sigprof_test_trap, %function",
        "sigprof_test_trap:",
        ".cfi_startproc",
        "udf #0",
        "ret",
        ".cfi_endproc",
        ".size sigprof_test_trap, . - sigprof_test_trap",
        // What a linker makes to get to another module.
        ".globl sigprof_test_stub",
        ".type sigprof_test_stub, %function",
        "sigprof_test_stub:",
        "udf #0",
        "ret",
        ".size sigprof_test_stub, . - sigprof_test_stub",
        // As the kernel's vDSO has it.
        ".globl sigprof_test_signal_return",
        ".type sigprof_test_signal_return, %function",
        "nop",
        "sigprof_test_signal_return:",
        "mov x8, #139",
        "svc #0",
        ".size sigprof_test_signal_return, . - sigprof_test_signal_return",
        // It keeps a frame pointer, and nobody says so.
        ".globl sigprof_test_untold",
        ".globl sigprof_test_untold_after",
        ".type sigprof_test_untold, %function",
        "sigprof_test_untold:",
        "stp x29, x30, [sp, #-32]!",
        "mov x29, sp",
        "adr x0, sigprof_test_trap",
        "blr x0",
        "sigprof_test_untold_after:",
        "ldp x29, x30, [sp], #32",
        "ret",
        ".size sigprof_test_untold, . - sigprof_test_untold",
        // As GCC does it: the frame counts from the stack pointer, with the two words of the frame
        // pointer at its lower end.
        ".globl sigprof_test_caller",
        ".globl sigprof_test_caller_after",
        ".type sigprof_test_caller, %function",
        "sigprof_test_caller:",
        ".cfi_startproc",
        "stp x29, x30, [sp, #-48]!",
        ".cfi_def_cfa_offset 48",
        ".cfi_offset x29, -48",
        ".cfi_offset x30, -40",
        "mov x29, sp",
        "blr x0",
        "sigprof_test_caller_after:",
        "ldp x29, x30, [sp], #48",
        ".cfi_restore x29",
        ".cfi_restore x30",
        ".cfi_def_cfa_offset 0",
        "ret",
        ".cfi_endproc",
        ".size sigprof_test_caller, . - sigprof_test_caller",
        // The same with a signed return address, where the machine can: `paciasp` and `autiasp` are
        // hints.
        ".globl sigprof_test_signing",
        ".globl sigprof_test_signing_after",
        ".type sigprof_test_signing, %function",
        "sigprof_test_signing:",
        ".cfi_startproc",
        "hint #25",
        ".cfi_negate_ra_state",
        "stp x29, x30, [sp, #-16]!",
        ".cfi_def_cfa_offset 16",
        ".cfi_offset x29, -16",
        ".cfi_offset x30, -8",
        "mov x29, sp",
        "blr x0",
        "sigprof_test_signing_after:",
        "ldp x29, x30, [sp], #16",
        ".cfi_restore x29",
        ".cfi_restore x30",
        ".cfi_def_cfa_offset 0",
        "hint #29",
        ".cfi_negate_ra_state",
        "ret",
        ".cfi_endproc",
        ".size sigprof_test_signing, . - sigprof_test_signing",
        // A leaf that signs: its return address is in the link register, and signed.
        ".globl sigprof_test_signing_leaf",
        ".type sigprof_test_signing_leaf, %function",
        "sigprof_test_signing_leaf:",
        ".cfi_startproc",
        "hint #25",
        ".cfi_negate_ra_state",
        "udf #0",
        "hint #29",
        ".cfi_negate_ra_state",
        "ret",
        ".cfi_endproc",
        ".size sigprof_test_signing_leaf, . - sigprof_test_signing_leaf",
    );

    unsafe extern "C" {
        pub(super) safe fn sigprof_test_signal_return();
        pub(super) fn sigprof_test_stub();
        pub(super) fn sigprof_test_untold();
        pub(super) fn sigprof_test_untold_after();
        pub(super) fn sigprof_test_signing(callee: unsafe extern "C" fn());
        pub(super) fn sigprof_test_signing_after();
        pub(super) fn sigprof_test_signing_leaf();
    }
}

type Callee = unsafe extern "C" fn();

unsafe extern "C" {
    /// Raises a SIGILL at its first instruction, and returns.
    fn sigprof_test_trap();
    fn sigprof_test_caller(callee: Callee);
    /// Where `sigprof_test_caller` goes on when its callee has returned.
    fn sigprof_test_caller_after();
}

/// What the handler works with, and what it found.
struct Probe {
    snapshot: Snapshot,
    cache: Cache,
    subject: Subject,
    /// How often the handler is to be interrupted itself before it looks.
    nested: usize,
    frames: [u64; 64],
    registers: Option<Registers>,
    unwound: Option<(usize, StopReason)>,
}

static PROBE: AtomicPtr<Probe> = AtomicPtr::new(std::ptr::null_mut());
/// The handler is the process's.
static TURN: Mutex<()> = Mutex::new(());

extern "C" fn on_trap(_: libc::c_int, _: *mut libc::siginfo_t, context: *mut libc::c_void) {
    let probe = PROBE.load(Ordering::SeqCst);
    // SAFETY: set by `probed`, which waits for this thread, the one that it runs on; a nested
    // handler uses it while the outer one does not.
    unsafe {
        if (*probe).nested > 0 {
            (*probe).nested -= 1;
            sigprof_test_caller(sigprof_test_trap);
        } else {
            let probe = &mut *probe;
            let registers = Registers::from_ucontext(context);
            let unwound = probe.snapshot.unwind(
                registers,
                probe.subject,
                &mut probe.cache,
                &mut probe.frames,
            );
            probe.registers = Some(registers);
            probe.unwound = Some((unwound.depth, unwound.reason));
        }
        let machine = &mut (*context.cast::<libc::ucontext_t>()).uc_mcontext;
        #[cfg(target_arch = "x86_64")]
        {
            machine.gregs[libc::REG_RIP as usize] += code::TRAP_BYTES;
        }
        #[cfg(target_arch = "aarch64")]
        {
            machine.pc += code::TRAP_BYTES;
        }
    }
}

/// The frames that were seen from the trap in what `run` calls, behind as many handlers as were to
/// be interrupted.
///
/// Handlers return through `restorer`, if it is there.
fn probed(
    snapshot: Snapshot,
    nested: usize,
    restorer: Option<extern "C" fn()>,
    run: impl FnOnce(),
) -> (Registers, Vec<u64>) {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let mut probe = Probe {
        snapshot,
        cache: Cache::new(),
        subject: Subject {
            pid: std::process::id() as i32,
            bounds: BoundsPlace::find(),
        },
        nested,
        frames: [0; 64],
        registers: None,
        unwound: None,
    };
    PROBE.store(&raw mut probe, Ordering::SeqCst);
    // SAFETY: all zeroes are a valid sigaction; the handler has the signature that SA_SIGINFO
    // promises, and comes on the stack that it interrupts. What was installed before is put back.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        let mut old: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = on_trap as *const () as libc::sighandler_t;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_NODEFER;
        if restorer.is_some() {
            const SA_RESTORER: libc::c_int = 0x0400_0000;
            action.sa_flags |= SA_RESTORER;
            action.sa_restorer = restorer;
        }
        assert_eq!(libc::sigaction(libc::SIGILL, &action, &mut old), 0);
        run();
        assert_eq!(libc::sigaction(libc::SIGILL, &old, std::ptr::null_mut()), 0);
    }
    let (depth, reason) = probe.unwound.expect("the trap was met");
    let frames = probe.frames[..depth].to_vec();
    assert_eq!(reason, StopReason::Root, "{frames:x?}");
    (probe.registers.unwrap(), frames)
}

fn address(function: Callee) -> u64 {
    function as *const () as u64
}

/// A snapshot without tables: framehop evaluates all rules.
fn evaluated() -> Snapshot {
    let maps = Maps::read().unwrap();
    Snapshot::new(1, loaded([].iter(), &maps), &maps, None, &[])
}

fn vdso() -> Option<Arc<Module>> {
    let mut modules = loaded([].iter(), &Maps::read().unwrap()).into_iter();
    modules.find(|module| module.object.path == "[vdso]")
}

#[test]
fn a_leafs_caller_is_where_it_returns_to() {
    for snapshot in [compiled(), evaluated()] {
        let (_, frames) = probed(snapshot, 0, None, || {
            // SAFETY: the handler goes on behind the trap.
            unsafe { sigprof_test_caller(sigprof_test_trap) };
        });
        let expected = [
            address(sigprof_test_trap),
            address(sigprof_test_caller_after),
        ];
        assert_eq!(frames[..2], expected, "{frames:x?}");
        assert!(frames.len() > 5, "{frames:x?}");
    }
}

#[test]
fn a_signals_frame_leads_to_what_it_interrupted() {
    if vdso().is_none() && cfg!(target_arch = "aarch64") {
        return crate::process::skip(
            "an emulator without a vDSO has the code that handlers return to where nobody finds it",
        );
    }
    for nested in 1..=3 {
        assert_leads_to_what_was_interrupted(compiled(), nested, None);
    }
}

fn assert_leads_to_what_was_interrupted(
    snapshot: Snapshot,
    nested: usize,
    restorer: Option<extern "C" fn()>,
) {
    let (_, frames) = probed(snapshot, nested, restorer, || {
        // SAFETY: the handler goes on behind the trap.
        unsafe { sigprof_test_caller(sigprof_test_trap) };
    });
    let after = address(sigprof_test_caller_after);
    let trap = address(sigprof_test_trap);
    assert_eq!(frames[..2], [trap, after], "{frames:x?}");
    // Of what a signal interrupted there is one more than the pc.
    let interrupted = frames.windows(2).filter(|two| *two == [trap + 1, after]);
    assert_eq!(interrupted.count(), nested, "{frames:x?}");
}

#[cfg(target_arch = "aarch64")]
mod aarch64 {
    use super::code::*;
    use super::*;
    use crate::sys::arch::RETURN_ADDRESS;

    #[test]
    fn a_signature_is_no_part_of_a_return_address() {
        for snapshot in [compiled(), evaluated()] {
            let (_, frames) = probed(snapshot, 0, None, || {
                // SAFETY: the handler goes on behind the trap.
                unsafe { sigprof_test_signing(sigprof_test_trap) };
            });
            let expected = [
                address(sigprof_test_trap),
                address(sigprof_test_signing_after),
            ];
            assert_eq!(frames[..2], expected, "{frames:x?}");
            assert!(frames.iter().all(|frame| frame >> 48 == 0), "{frames:x?}");
        }
    }

    #[test]
    fn a_signature_is_taken_off_the_link_register() {
        for snapshot in [compiled(), evaluated()] {
            let (registers, frames) = probed(snapshot, 0, None, || {
                // SAFETY: as above.
                unsafe { sigprof_test_caller(sigprof_test_signing_leaf) };
            });
            let link = registers.general[usize::from(RETURN_ADDRESS)];
            println!("the link register is {link:#x}");
            assert_eq!(frames[1], address(sigprof_test_caller_after), "{link:x}");
        }
    }

    #[test]
    fn a_stub_without_unwind_data_has_no_frame() {
        let (_, frames) = probed(compiled(), 0, None, || {
            // SAFETY: as above.
            unsafe { sigprof_test_caller(sigprof_test_stub) };
        });
        let expected = [
            address(sigprof_test_stub),
            address(sigprof_test_caller_after),
        ];
        assert_eq!(frames[..2], expected, "{frames:x?}");
    }

    #[test]
    fn behind_code_that_only_keeps_a_frame_pointer_the_stack_goes_on() {
        let (_, frames) = probed(compiled(), 0, None, || {
            // SAFETY: as above.
            unsafe { sigprof_test_caller(sigprof_test_untold) };
        });
        let expected = [
            address(sigprof_test_trap),
            address(sigprof_test_untold_after),
            address(sigprof_test_caller_after),
        ];
        assert_eq!(frames[..3], expected, "{frames:x?}");
    }

    #[test]
    #[ignore = "the emulator has no process_vm_readv, by which code is read"]
    fn where_handlers_return_to_is_known_by_its_code() {
        assert_leads_to_what_was_interrupted(compiled(), 1, Some(sigprof_test_signal_return));
    }

    #[test]
    fn where_handlers_return_to_needs_no_unwind_data() {
        let maps = Maps::read().unwrap();
        let mut modules = loaded([].iter(), &maps);
        modules[0] = Arc::new(Module {
            signal_return: Some(sigprof_test_signal_return as *const () as u64),
            ..Module::clone(&modules[0])
        });
        let snapshot = Snapshot::new(1, modules, &maps, None, &[]);
        snapshot.modules().iter().for_each(|rules| rules.compile());
        assert_leads_to_what_was_interrupted(snapshot, 1, Some(sigprof_test_signal_return));
    }

    #[test]
    fn where_handlers_return_to_is_found_in_the_vdso() {
        let Some(vdso) = vdso() else {
            return crate::process::skip("this emulator has no vDSO");
        };
        let address = vdso.signal_return.expect("the vDSO has such code");
        assert!(vdso.range.contains(&address));
    }
}
