use super::*;
use crate::sys::memory::Window;

/// A stack of eight words, and a frame with its stack pointer at the first of them.
fn with_stack(
    words: &[u64; 8],
    wanted: Wanted,
    check: impl FnOnce(&mut Frame, &mut StackReader<'_>, u64),
) {
    let sp = words.as_ptr() as u64;
    let mut registers = Registers {
        pc: 0x1000,
        general: [0; REGISTERS],
    };
    registers.general[usize::from(SP)] = sp;
    let mut window = Window::new();
    let mut stack = StackReader::of_words(words, &mut window);
    check(&mut Frame::interrupted(registers, wanted), &mut stack, sp);
}

fn by(register: u8, words: i32) -> Rule {
    Rule {
        cfa_register: register,
        cfa_offset: words * 8,
        return_address: Place::at(-8),
        ..Rule::of(Kind::Register)
    }
}

/// Of a function that has saved a register that callees preserve, and is not the frame pointer.
fn saving(place: Place) -> Rule {
    let mut rule = by(SP, 3);
    let index = CALLEE_SAVED
        .iter()
        .position(|&number| number != FP)
        .unwrap();
    rule.saved[index] = place;
    rule.finished()
}

fn other_register() -> u8 {
    CALLEE_SAVED
        .into_iter()
        .find(|&number| number != FP)
        .unwrap()
}

#[test]
fn a_caller_is_where_the_rule_says() {
    let words = [0, 0, 0x2000, 0, 0x3000, 0, 0, 0];
    with_stack(&words, Wanted::FramePointer, |frame, stack, sp| {
        assert_eq!(frame.step(&by(SP, 3), stack), Ok(true));
        assert_eq!((frame.pc(), frame.sp()), (0x2000, sp + 24));
        assert_eq!(frame.place(), 0x1fff);
        assert_eq!(frame.step(&by(SP, 2), stack), Ok(true));
        assert_eq!((frame.pc(), frame.sp()), (0x3000, sp + 40));
        assert_eq!(frame.step(&by(SP, 0), stack), Err(StopReason::NotAdvancing));
        assert_eq!(
            frame.step(&by(SP, 1), stack),
            Ok(false),
            "no return address"
        );
        assert_eq!(frame.step(&by(SP, 9), stack), Err(StopReason::Unreadable));
    });
}

#[test]
fn registers_that_are_seldom_needed_are_looked_for_when_they_are() {
    let mut words = [0, 0, 0x2000, 0, 0, 0x3000, 0, 0];
    words[0] = words.as_ptr() as u64 + 4 * 8;
    let rules = [saving(Place::at(-24)), by(other_register(), 2)];
    with_stack(&words, Wanted::FramePointer, |frame, stack, _| {
        assert_eq!(frame.step(&rules[0], stack), Ok(true));
        assert!(!frame.wants_more);
        assert_eq!(frame.step(&rules[1], stack), Err(StopReason::NoUnwindData));
        assert!(frame.wants_more);
    });
    with_stack(&words, Wanted::All, |frame, stack, _| {
        assert_eq!(frame.step(&rules[0], stack), Ok(true));
        let base = frame.register(other_register());
        assert_eq!(base, Some(words[0]));
    });
}

#[test]
fn what_is_undefined_is_not_known() {
    let words = [0, 0, 0x2000, 0, 0, 0x3000, 0, 0];
    with_stack(&words, Wanted::All, |frame, stack, _| {
        assert_eq!(frame.step(&saving(Place::UNDEFINED), stack), Ok(true));
        assert_eq!(frame.register(other_register()), None);
        assert!(!frame.wants_more, "nobody could know it");
    });
}

#[test]
fn frame_pointers_lead_up() {
    let mut words = [0, 0, 0, 0x2000, 0, 0, 0, 0];
    let sp = words.as_ptr() as u64;
    words[2] = sp;
    for (fp, expected) in [
        (sp + 16, Ok(true)),
        (sp - 8, Err(StopReason::NoUnwindData)),
        (sp + 17, Err(StopReason::NoUnwindData)),
        (sp + 64, Err(StopReason::NoUnwindData)),
    ] {
        with_stack(&words, Wanted::FramePointer, |frame, stack, _| {
            frame.put(FP, fp);
            assert_eq!(frame.step_by_frame_pointer(stack), expected, "{fp:#x}");
        });
    }
}

#[test]
fn a_frame_can_begin_above_what_is_loaded() {
    let mut words = [0, 0, 0, 0, 0, 0x2000, 0, 0];
    words[1] = &raw const words[5] as u64;
    with_stack(&words, Wanted::FramePointer, |frame, stack, sp| {
        let rule = Rule {
            cfa_register: SP,
            cfa_offset: 8,
            loaded_offset: 8,
            return_address: Place::at(-8),
            ..Rule::of(Kind::Loaded)
        };
        assert_eq!(frame.step(&rule, stack), Ok(true));
        assert_eq!((frame.pc(), frame.sp()), (0x2000, sp + 48));
    });
}

#[test]
fn a_frame_pointer_that_leads_to_zeros_proves_nothing() {
    with_stack(&[0; 8], Wanted::FramePointer, |frame, stack, sp| {
        frame.put(FP, sp + 16);
        assert_eq!(
            frame.step_by_frame_pointer(stack),
            Err(StopReason::NoUnwindData)
        );
    });
}

#[test]
#[cfg(target_arch = "x86_64")]
fn a_register_that_calls_change_is_what_it_was_at_the_leaf() {
    const RAX: u8 = 0;
    let words = [0x2000, 0, 0, 0x3000, 0, 0, 0, 0];
    with_stack(&words, Wanted::FramePointer, |frame, stack, sp| {
        frame.put(RAX, sp + 24);
        assert_eq!(frame.step(&by(SP, 1), stack), Ok(true));
        assert_eq!(frame.step(&by(RAX, 1), stack), Ok(true));
        assert_eq!((frame.pc(), frame.sp()), (0x3000, sp + 32));
    });
}
