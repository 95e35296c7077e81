//! Profiles as files: what is written is read back, by us and by the tools of the field.

mod formats {
    mod files;
    mod gmon;
    mod goldens;
    mod hostile;
    mod legacy;
    mod real_readers;
    mod round_trip;
    mod samples;
}
#[path = "support/large.rs"]
mod large;
#[path = "support/process.rs"]
mod process;
mod support;
#[path = "support/work.rs"]
mod work;
