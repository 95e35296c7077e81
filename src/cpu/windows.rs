//! Windows: profiles of the time between two moments that share one recording.
//!
//! There is one recording at a time in a process, and several may want to know what the process
//! does, each for a while of its own. A window is counted within whichever recording runs: the
//! program's own, or one that runs for the sake of windows alone, as often as the most demanding of
//! them asks. Where the program starts or stops its own, the windows move to the recording that
//! follows, and their profiles are put together of parts.
//!
//! A recording has one clock. Windows of the other clock are refused, and the program's own
//! recording alone takes a clock away from windows that are open: they go on when no window is open
//! that has the clock that came between.
#![forbid(unsafe_code)]

use std::sync::{Arc, Condvar, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::audit::UNSAMPLED;
use super::collector::{Moment, Part};
use super::engine::{self, Rate};
use super::profiler::Profiler;
use super::recording::{Recording, Shared};
use crate::aggregate::NamedFrames;
use crate::error::{Error, ErrorKind, Result};
use crate::profile::Profile;
use crate::sync::Mutex;
use crate::sys::per_process::PerProcess;

/// The most memory that the samples of a recording for windows alone take before the next window
/// begins a new one: where windows overlap without end, it would never end.
const MOST_TABLE_BYTES: usize = 16 << 20;

/// The sample type of a recording's profile that counts periods.
const COUNTS: usize = 0;

/// A forked child has none of its parent's.
static WINDOWS: PerProcess<Mutex<Windows>> = PerProcess::new();

/// Whoever waits for the end of a window, and is told to look up before.
#[derive(Debug, Default)]
pub(crate) struct Waiter {
    news: std::sync::Mutex<News>,
    is_there: Condvar,
}

#[derive(Debug, Default)]
struct News {
    /// The window is wanted no more.
    is_cancelled: bool,
    /// The recording has ended.
    is_left: bool,
}

impl Waiter {
    /// Says that nobody wants the window any more.
    pub(crate) fn cancel(&self) {
        self.tell(|news| news.is_cancelled = true);
    }

    fn tell(&self, what: impl FnOnce(&mut News)) {
        what(&mut self.news());
        self.is_there.notify_all();
    }

    fn news(&self) -> MutexGuard<'_, News> {
        self.news.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A window that is open. Dropping it ends it.
#[derive(Debug)]
pub(crate) struct Window {
    number: u32,
    opened: Instant,
    waiter: Arc<Waiter>,
    windows: &'static Mutex<Windows>,
}

impl Window {
    /// Opens a window of the clock and the rate that `profiler` has; `waiter` waits for its end.
    ///
    /// # Errors
    ///
    /// [`AlreadyRunning`](ErrorKind::AlreadyRunning) where another clock is recorded, and those of
    /// [`Profiler::start`].
    pub(crate) fn open(profiler: Profiler, waiter: &Arc<Waiter>) -> Result<Self> {
        let (rate, _) = profiler.checked()?;
        let refused =
            |error| Error::with_source(ErrorKind::Os, "could not get a page of memory", error);
        let windows = WINDOWS.get_or_make(Mutex::default).map_err(refused)?;
        let mut all = windows.lock();
        all.last_number += 1;
        let number = all.last_number;
        all.open.push(Open {
            number,
            profiler,
            rate,
            is_counted: false,
            parts: Vec::new(),
            waiter: waiter.clone(),
        });
        all.end_what_has_grown();
        let settled = all.settle();
        let opened = all.open.last().is_some_and(|open| open.is_counted);
        if !opened {
            let refusal = all.other_clock();
            all.remove(number);
            return Err(settled.err().unwrap_or(refusal));
        }
        Ok(Self {
            number,
            opened: Instant::now(),
            waiter: waiter.clone(),
            windows,
        })
    }

    /// Waits until the window has been open for so long; false as soon as nobody wants it any more.
    pub(crate) fn waits_for(&self, time: Duration) -> bool {
        let end = self.opened + time;
        let mut news = self.waiter.news();
        loop {
            if news.is_cancelled {
                return false;
            }
            if std::mem::take(&mut news.is_left) {
                drop(news);
                // What cannot be recorded now will be missing, and be said to be.
                let _ = self.windows.lock().settle();
                news = self.waiter.news();
                continue;
            }
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return true;
            }
            let waited = self.waiter.is_there.wait_timeout(news, left);
            news = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// The profile of the window: addresses, not names.
    pub(crate) fn close(self) -> Profile {
        let (parts, unsampled_to) = self.windows.lock().remove(self.number);
        put_together(parts, unsampled_to)
    }
}

impl Drop for Window {
    fn drop(&mut self) {
        // Of one that was closed there is nothing left.
        self.windows.lock().remove(self.number);
    }
}

/// Starts the program's own recording: windows leave the one that runs for their sake alone, and go
/// on in the program's.
pub(super) fn begin_recording(profiler: &Profiler) -> Result<Recording> {
    // Without a page for windows there are none.
    let Ok(windows) = WINDOWS.get_or_make(Mutex::default) else {
        return Recording::start_alone(profiler, &mut |_| {});
    };
    let mut all = windows.lock();
    all.end_own();
    let started = all.start(profiler);
    if let Ok(recording) = &started {
        all.program = Some(Running::of(recording, profiler));
        all.last_clock = Some(profiler.clock_asked());
    }
    // Without the program's recording, one for windows alone begins again.
    let _ = all.settle();
    started
}

/// Ends a recording. Where it is the program's own, windows take what they have of it, and go on in
/// one for them alone.
pub(super) fn end_recording(recording: &Recording) -> Result<()> {
    let Some(windows) = WINDOWS.get() else {
        return recording.end_alone(&mut || {});
    };
    let mut all = windows.lock();
    let is_it = |program: &mut Running| Arc::ptr_eq(&program.shared, recording.shared());
    let Some(program) = all.program.take_if(is_it) else {
        drop(all);
        return recording.end_alone(&mut || {});
    };
    // Whoever waits for a window looks for a recording that goes on when this one has ended.
    recording.end_alone(&mut || all.leave(&program.shared))
}

/// All windows, and the recording that they are counted in.
#[derive(Debug, Default)]
struct Windows {
    last_number: u32,
    open: Vec<Open>,
    /// The program's own recording, while it runs.
    program: Option<Running>,
    /// The recording for windows alone, while it runs.
    own: Option<Own>,
    /// The clock of the recording that runs or, while none does, of the one that ran last.
    last_clock: Option<engine::Clock>,
}

#[derive(Debug)]
struct Open {
    number: u32,
    profiler: Profiler,
    rate: Rate,
    /// By the recording that runs.
    is_counted: bool,
    /// What it has of recordings that have ended.
    parts: Vec<Part>,
    waiter: Arc<Waiter>,
}

/// A recording that runs.
#[derive(Debug)]
struct Running {
    clock: engine::Clock,
    shared: Arc<Shared>,
}

impl Running {
    fn of(recording: &Recording, profiler: &Profiler) -> Self {
        Self {
            clock: profiler.clock_asked(),
            shared: recording.shared().clone(),
        }
    }
}

#[derive(Debug)]
struct Own {
    recording: Recording,
    running: Running,
    rate: Rate,
}

impl Windows {
    /// The error of a window whose clock is not the one that is recorded.
    fn other_clock(&self) -> Error {
        let whose = match self.program {
            Some(_) => "the program's own recording",
            None => "another request's recording",
        };
        let is_of = match self.last_clock {
            Some(engine::Clock::Wall) => "elapsed time",
            _ => "CPU time",
        };
        Error::new(
            ErrorKind::AlreadyRunning,
            format!(
                "{whose} is of {is_of}, and a process records one kind of time at once; ask for that, or later"
            ),
        )
    }

    /// Has all open windows counted by the recording that runs, and starts or ends the one that is
    /// there for them alone.
    fn settle(&mut self) -> Result<()> {
        if self.program.is_none() {
            self.settle_own()?;
        }
        let own = self.own.as_ref().map(|own| &own.running);
        let Some(running) = self.program.as_ref().or(own) else {
            return Ok(());
        };
        for open in open_by(running.clock, &mut self.open) {
            let mut collector = running.shared.collector.lock();
            collector.open_window(open.number, open.rate);
            open.is_counted = true;
        }
        Ok(())
    }

    /// Starts a recording that counts for all windows of its clock from its start on: nothing that
    /// the process does between one recording and the next is to be missing for long, and the
    /// collector is busy for a while when it has started.
    fn start(&mut self, profiler: &Profiler) -> Result<Recording> {
        let mut counted = Vec::new();
        let started = Recording::start_alone(profiler, &mut |collector| {
            for open in open_by(profiler.clock_asked(), &mut self.open) {
                collector.open_window_at_start(open.number, open.rate);
                open.is_counted = true;
                counted.push(open.number);
            }
        });
        if started.is_err() {
            for open in &mut self.open {
                open.is_counted &= !counted.contains(&open.number);
            }
        }
        started
    }

    /// Has the recording for windows alone tick as often as the most demanding of them asks, by the
    /// clock that was recorded last as long as a window has that clock.
    fn settle_own(&mut self) -> Result<()> {
        let most = self.open.iter().max_by_key(|open| {
            let is_recorded = Some(open.profiler.clock_asked()) == self.last_clock;
            (is_recorded, open.rate.frequency_hz)
        });
        let Some((profiler, rate)) = most.map(|most| (most.profiler.clone(), most.rate)) else {
            self.end_own();
            return Ok(());
        };
        let clock = profiler.clock_asked();
        let fits = |own: &Own| own.rate == rate && own.running.clock == clock;
        if !self.own.as_ref().is_some_and(fits) {
            self.end_own();
            let recording = self.start(&profiler)?;
            self.last_clock = Some(clock);
            self.own = Some(Own {
                running: Running::of(&recording, &profiler),
                recording,
                rate,
            });
        }
        Ok(())
    }

    /// Ends the recording for windows alone if its samples take much memory.
    fn end_what_has_grown(&mut self) {
        let bytes = |own: &Own| own.running.shared.collector.lock().table_bytes();
        if self.own.as_ref().map_or(0, bytes) > MOST_TABLE_BYTES {
            self.end_own();
        }
    }

    /// Ends the recording for windows alone.
    fn end_own(&mut self) {
        if let Some(own) = self.own.take() {
            // An error says that it has ended.
            let _ = own
                .recording
                .end_alone(&mut || self.leave(&own.running.shared));
        }
    }

    /// Takes what windows have of a recording that ends.
    fn leave(&mut self, shared: &Shared) {
        for open in self.open.iter_mut().filter(|open| open.is_counted) {
            open.parts
                .extend(shared.collector.lock().close_window(open.number));
            open.is_counted = false;
            open.waiter.tell(|news| news.is_left = true);
        }
    }

    /// What a window has, which is over; and this moment, where nothing has counted for it in the
    /// end.
    fn remove(&mut self, number: u32) -> (Vec<Part>, Option<Moment>) {
        let Some(place) = self.open.iter().position(|open| open.number == number) else {
            return (Vec::new(), None);
        };
        let open = self.open.swap_remove(place);
        let mut parts = open.parts;
        let own = self.own.as_ref().map(|own| &own.running);
        let running = self.program.as_ref().or(own).filter(|_| open.is_counted);
        let end = match running {
            Some(running) => {
                parts.extend(running.shared.collector.lock().close_window(number));
                None
            }
            None => Moment::now().ok(),
        };
        // What the others cannot have now will be missing, and be said to be.
        let _ = self.settle();
        (parts, end)
    }
}

/// The windows that no recording counts for, and that one of this clock can.
fn open_by(clock: engine::Clock, open: &mut [Open]) -> impl Iterator<Item = &mut Open> {
    let waiting = open.iter_mut().filter(|open| !open.is_counted);
    waiting.filter(move |open| open.profiler.clock_asked() == clock)
}

/// One profile of a window's parts. Time between them was not sampled, nor that after the last one,
/// where the window went on to `end`.
fn put_together(parts: Vec<Part>, end: Option<Moment>) -> Profile {
    let (Some(first), Some(last)) = (parts.first(), parts.last()) else {
        return Profile::default();
    };
    let from = first.from;
    let to = end.unwrap_or(last.to);
    let between = |from: u64, to: u64| to.saturating_sub(from);
    let mut unsampled_ns = between(last.to.process_cpu_ns, to.process_cpu_ns);
    for (part, next) in parts.iter().zip(&parts[1..]) {
        unsampled_ns += between(part.to.process_cpu_ns, next.from.process_cpu_ns);
    }
    let is_whole = parts.len() == 1 && end.is_none();
    let comments = comments_of(&parts, is_whole);
    // So that counts of periods can be added up. The shortest leaves none of them out.
    let periods = parts.iter().map(|part| part.profile.period);
    let period = periods.min().unwrap_or_default();
    let mut profile = Profile::merged(parts.into_iter().map(|part| {
        let mut profile = part.profile;
        if profile.period != period {
            profile.count_by(period, COUNTS);
        }
        profile
    }));
    profile.comments = comments;
    let duration = to.at.saturating_duration_since(from.at);
    profile.duration_nanos = duration.as_nanos().max(1) as i64;
    // By elapsed time that is not what samples are made of.
    if unsampled_ns > 0 && profile.period_type.r#type == "cpu" {
        let count = unsampled_ns as i64 / profile.period.max(1);
        let frame = NamedFrames::default().of(&mut profile, UNSAMPLED);
        profile.push_sample(&[frame], &[count, unsampled_ns as i64], &[]);
    }
    profile
}

/// The comments of each part, below a line that says which time it is of where that is not the whole
/// window.
fn comments_of(parts: &[Part], is_whole: bool) -> Vec<String> {
    let mut comments = Vec::new();
    let begin = parts[0].from.at;
    for (index, part) in parts.iter().enumerate() {
        if !is_whole {
            let since_begin = |moment: &Moment| moment.at.saturating_duration_since(begin);
            comments.push(format!(
                "recording {} of {}: from {:.3} s to {:.3} s",
                index + 1,
                parts.len(),
                since_begin(&part.from).as_secs_f64(),
                since_begin(&part.to).as_secs_f64()
            ));
        }
        comments.extend(part.profile.comments.iter().cloned());
    }
    comments
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The begin of the recording for windows alone, in nanoseconds since the Unix epoch.
    fn recorded_since(windows: &Mutex<Windows>) -> i64 {
        let all = windows.lock();
        let shared = &all.own.as_ref().unwrap().running.shared;
        shared.collector.lock().profile().time_nanos
    }

    #[test]
    fn windows_have_all_of_the_recordings_that_are_started_for_them() {
        let window = Window::open(Profiler::new(), &Arc::default()).unwrap();
        let first = recorded_since(window.windows);
        let faster = Profiler::new().frequency_hz(1000);
        let other = Window::open(faster, &Arc::default()).unwrap();
        let second = recorded_since(window.windows);
        assert!(second > first);
        for (window, since) in [(window, vec![first, second]), (other, vec![second])] {
            let (parts, _) = window.windows.lock().remove(window.number);
            let begins = parts.iter().map(|part| part.profile.time_nanos);
            // Without the first, the second goes on.
            assert_eq!(begins.collect::<Vec<i64>>(), since);
        }
    }

    #[test]
    fn a_clock_that_the_program_takes_away_comes_back() {
        let cpu = Profiler::new().frequency_hz(100);
        let wall = Profiler::new().clock(engine::Clock::Wall).frequency_hz(500);
        let open = |profiler: &Profiler| Window::open(profiler.clone(), &Arc::default());
        let refusal = |profiler| {
            let error = open(profiler).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::AlreadyRunning);
            error.to_string()
        };
        let first = open(&cpu).unwrap();
        assert!(refusal(&wall).contains("another request's recording is of CPU time"));
        let recording = wall.clone().start().unwrap();
        assert!(refusal(&cpu).contains("the program's own recording is of elapsed time"));
        let second = open(&wall).unwrap();
        let burnt = crate::sys::clock::Clock::THREAD_CPU;
        let until = burnt.now_ns().unwrap() + 20_000_000;
        while burnt.now_ns().unwrap() < until {}
        recording.stop().unwrap();
        // The second is counted, and goes on.
        assert!(refusal(&cpu).contains("another request's recording is of elapsed time"));
        let profile = second.close();
        assert_eq!(profile.period_type.r#type, "wall");
        assert!(profile.duration_nanos > 0 && !profile.comments.is_empty());
        assert!(refusal(&wall).contains("another request's recording is of CPU time"));
        let third = open(&Profiler::new().frequency_hz(300)).unwrap();
        for window in [first, third] {
            let (parts, end) = window.windows.lock().remove(window.number);
            let is_first = parts.len() == 3;
            assert!(is_first || parts.len() == 1, "{parts:?}");
            let profile = put_together(parts, end);
            assert_eq!(profile.period_type.r#type, "cpu");
            let unsampled = (profile.top(0).rows().iter()).any(|row| row.name == UNSAMPLED);
            assert!(unsampled || !is_first, "{profile}");
            let part = "recording 3 of 3: from ";
            let is_told = |comment: &String| comment.starts_with(part);
            assert_eq!(profile.comments.iter().any(is_told), is_first);
        }
    }

    #[test]
    fn a_window_says_how_much_of_its_time_another_clock_took() {
        let wall = Profiler::new().clock(engine::Clock::Wall);
        let window = Window::open(wall, &Arc::default()).unwrap();
        let recording = Profiler::new().start().unwrap();
        let taken = Instant::now();
        while taken.elapsed() < Duration::from_millis(20) {
            std::thread::yield_now();
        }
        let profile = window.close();
        drop(recording);
        let part = profile.comments[0].strip_prefix("recording 1 of 1: from 0.000 s to ");
        let part = part.unwrap_or_else(|| panic!("{:?}", profile.comments));
        let recorded: f64 = part.strip_suffix(" s").unwrap().parse().unwrap();
        assert!(recorded + 0.02 <= profile.duration_nanos as f64 / 1e9 + 0.001);
    }
}
