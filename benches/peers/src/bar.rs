//! What has to be reached, and whether it was.

/// A line of the table.
#[derive(Debug)]
pub struct Bar {
    what: String,
    wanted: String,
    measured: String,
    cleared: bool,
}

impl Bar {
    /// On one figure. A figure that is missing clears none.
    pub fn new(
        what: impl Into<String>,
        wanted: impl Into<String>,
        figure: Option<f64>,
        show: impl Fn(f64) -> String,
        clears: impl Fn(f64) -> bool,
    ) -> Self {
        Self {
            what: what.into(),
            wanted: wanted.into(),
            measured: figure.map_or_else(|| "not measured".to_owned(), show),
            cleared: figure.is_some_and(clears),
        }
    }
}

/// Prints a line for each; whether all were cleared.
pub fn print(bars: &[Bar]) -> bool {
    println!("## Bars\n");
    println!("| sigprof | wanted | measured | |");
    println!("|---|---|---|---|");
    for bar in bars {
        let verdict = if bar.cleared { "pass" } else { "**FAIL**" };
        println!(
            "| {} | {} | {} | {verdict} |",
            bar.what, bar.wanted, bar.measured
        );
    }
    bars.iter().all(|bar| bar.cleared)
}
