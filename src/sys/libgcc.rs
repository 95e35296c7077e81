//! The C compiler's unwinder, which every program with exceptions or panics has.

use std::ffi::{c_int, c_void};

/// `struct _Unwind_Context`, of which pointers are passed around.
#[repr(C)]
struct Context {
    _opaque: [u8; 0],
}

/// `_URC_NO_REASON`: go on.
const GO_ON: c_int = 0;
/// `_URC_END_OF_STACK`: enough.
const ENOUGH: c_int = 5;

type Trace = extern "C" fn(*mut Context, *mut c_void) -> c_int;

// Exception Handling ABI for Itanium, 1.5; the standard library links it.
unsafe extern "C" {
    fn _Unwind_Backtrace(trace: Trace, data: *mut c_void) -> c_int;
    fn _Unwind_GetIP(context: *mut Context) -> usize;
    fn _Unwind_GetCFA(context: *mut Context) -> usize;
}

/// A frame of the calling thread's stack.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Frame {
    /// The return address; of an interrupted frame, the pc.
    pub(crate) pc: u64,
    /// The stack pointer at the call that the frame is in.
    pub(crate) sp: u64,
}

/// Shows the frames of the calling thread, innermost first, until `f` answers false. The first ones
/// are of this function and what calls it.
///
/// Not async-signal-safe: before glibc 2.35 it takes a lock of the loader's.
pub(crate) fn each_frame(f: &mut dyn FnMut(Frame) -> bool) {
    extern "C" fn trace(context: *mut Context, data: *mut c_void) -> c_int {
        // SAFETY: the unwinder passes its own context.
        let (pc, sp) = unsafe { (_Unwind_GetIP(context), _Unwind_GetCFA(context)) };
        // SAFETY: `data` is the reference passed below, alive for the whole walk.
        let f = unsafe { &mut *data.cast::<&mut dyn FnMut(Frame) -> bool>() };
        let (pc, sp) = (pc as u64, sp as u64);
        // Behind the last frame there may be one without code.
        match pc != 0 && f(Frame { pc, sp }) {
            true => GO_ON,
            false => ENOUGH,
        }
    }
    let mut f = f;
    // SAFETY: the callback matches its data.
    unsafe { _Unwind_Backtrace(trace, (&raw mut f).cast()) };
}
