//! The error of shares.

use super::{head, plain, row, taking_part};
use crate::plan::{Case, Figures, Of, SHARES_HZ};
use crate::subjects::{GPERFTOOLS, GPERFTOOLS_MOST_HZ, Measurement, Subject};

pub fn print(subjects: &[&Subject], figures: &Figures) {
    println!("## Error of shares\n");
    println!(
        "How far the share in the profile that is furthest off is from the share of CPU time, in percentage points, over 3 s \
         of CPU: of 8 threads with 1 to 8 parts of the work each, and of 4 functions with 60, 25, 10 and 5 % of one thread.\n"
    );
    let cases: Vec<Case> = [Of::Threads, Of::Functions]
        .into_iter()
        .flat_map(|of| SHARES_HZ.map(|hz| Case::Shares { of, hz }))
        .collect();
    let titles: Vec<String> = ["threads", "functions"]
        .into_iter()
        .flat_map(|of| SHARES_HZ.map(|hz| format!("{of}, {hz} Hz")))
        .collect();
    head("", &titles);
    for subject in taking_part(subjects, Measurement::Shares) {
        let cells: Vec<String> = cases
            .iter()
            .map(|&case| {
                let points = |points: f64| format!("{points:.2}");
                let cell = plain(figures, case, subject.name, "worst_points", points);
                match case {
                    Case::Shares {
                        of: Of::Functions,
                        hz,
                    } if subject.name == GPERFTOOLS && hz > GPERFTOOLS_MOST_HZ => {
                        format!("{cell} (at {GPERFTOOLS_MOST_HZ} Hz)")
                    }
                    _ => cell,
                }
            })
            .collect();
        row(subject.name, &cells);
    }
    println!();
}
