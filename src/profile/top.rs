//! The functions that cost the most, as `pprof -top` prints them.
//!
//! Source: google/pprof, `internal/report/report.go`, with its default options:
//! granularity functions, sorted by flat value, nodes below 0.5 % dropped, edges below 0.1 %.

use std::cmp::Reverse;
use std::fmt;

use super::Profile;
use super::graph::{Graph, base_name, value_of};
use super::text::{Escaped, UtcTime};
use super::unit::{label, percentage, scale};

/// Nodes whose cumulated value is below this share of the total are dropped.
const NODE_FRACTION: f64 = 0.005;
/// Edges below this share of the total do not decide whether a function was inlined.
const EDGE_FRACTION: f64 = 0.001;

/// The costliest functions of a profile: [rows](Self::rows) for programs, [`Display`](fmt::Display)
/// for people, who get what `go tool pprof -top` prints.
///
/// These things differ from pprof:
///
/// - The time is given in UTC.
/// - [`Profile::drop_frames`] is not applied.
/// - Control characters of names and comments are escaped.
/// - Sums stop at the limits of `i64`, where pprof's wrap around, become negative and drop
///   functions.
/// - The total is that of all samples' absolute values. pprof unites samples of equal stacks and
///   labels before it takes these, so that values of both signs cancel out and its total is
///   smaller, down to 0. Without negative values there is no difference.
#[derive(Clone, Debug)]
pub struct Top {
    header: Vec<String>,
    rows: Vec<TopRow>,
    total: i64,
    unit: String,
    output_unit: String,
}

/// A function in a [`Top`].
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct TopRow {
    /// The function's name; without one, the object file's in brackets; without that, `<unknown>`.
    pub name: String,
    /// ` (inline)` where all calls to it were inlined, ` (partial-inline)` where some were, else
    /// empty.
    pub inline: &'static str,
    /// What was spent in the function itself, in the unit of the sample type.
    pub flat: i64,
    /// What was spent in it and in what it calls; a sample counts once, however often the function
    /// recurs in it.
    pub cum: i64,
}

impl Profile {
    /// The `n` costliest functions by the [default sample type](Self::default_sample_index), all of
    /// them if `n` is 0; functions below half a percent are left out, as `pprof -top -nodecount=n`
    /// does.
    pub fn top(&self, n: usize) -> Top {
        let index = self.default_sample_index();
        let unit = self
            .sample_types()
            .get(index)
            .map_or_else(String::new, |t| t.unit.to_string());
        let mut total = 0i64;
        for sample in self.samples() {
            total = total.saturating_add(value_of(&sample, index).saturating_abs());
        }
        let graph = Graph::new(self, index);

        let mut order: Vec<u32> = (0..graph.nodes.len() as u32)
            .filter(|&i| graph.node(i).flat != 0 || graph.node(i).cum != 0)
            .collect();
        let all = order.len();
        let flat_total = order
            .iter()
            .fold(0i64, |sum, &i| sum.saturating_add(graph.node(i).flat));
        let cutoff = |fraction: f64| ((flat_total as f64 * fraction) as i64).saturating_abs();
        order.retain(|&i| graph.node(i).cum.saturating_abs() >= cutoff(NODE_FRACTION));
        let kept = order.len();
        order.sort_by_cached_key(|&i| {
            let node = graph.node(i);
            let (flat, cum) = (node.flat.saturating_abs(), node.cum.saturating_abs());
            (Reverse(flat), node.name.clone(), Reverse(cum))
        });
        if n > 0 {
            order.truncate(n);
        }

        let inline = graph.inline_labels(self, &order, cutoff(EDGE_FRACTION));
        let rows: Vec<TopRow> = order
            .iter()
            .zip(inline)
            .map(|(&i, inline)| {
                let node = graph.node(i);
                TopRow {
                    name: node.name.clone(),
                    inline,
                    flat: node.flat,
                    cum: node.cum,
                }
            })
            .collect();

        let mut top = Top {
            header: Vec::new(),
            output_unit: output_unit(&rows, total, &unit),
            rows,
            total,
            unit,
        };
        top.header = top.header_of(self, index, all - kept, kept);
        top
    }
}

/// The unit in which all values of a table are printed: pprof's choice for `unit=minimum`.
fn output_unit(rows: &[TopRow], total: i64, unit: &str) -> String {
    if rows.is_empty() {
        return "minimum".to_owned();
    }
    let smallest = rows
        .iter()
        .map(|row| match row.flat {
            0 => row.cum.saturating_abs(),
            flat => flat.saturating_abs(),
        })
        .filter(|&value| value > 0)
        .min()
        .unwrap_or(total);
    let (_, smallest_unit) = scale(smallest, unit, "minimum");
    let (_, largest_unit) = scale(total, unit, "minimum");
    let hundredfold = smallest.saturating_mul(100);
    let chosen = match smallest_unit != largest_unit && hundredfold < total {
        true => scale(hundredfold, unit, "minimum").1,
        false => smallest_unit,
    };
    match chosen.is_empty() {
        true => unit.to_owned(),
        false => chosen,
    }
}

impl Top {
    /// The functions, costliest first.
    pub fn rows(&self) -> &[TopRow] {
        &self.rows
    }

    /// What the shares in the table refer to: the sum of all samples' values.
    pub fn total(&self) -> i64 {
        self.total
    }

    /// The unit of [`rows`](Self::rows) and [`total`](Self::total), as the sample type names it.
    pub fn unit(&self) -> &str {
        &self.unit
    }

    fn value(&self, value: i64) -> String {
        label(value, &self.unit, &self.output_unit)
    }

    fn header_of(
        &self,
        profile: &Profile,
        index: usize,
        dropped: usize,
        kept: usize,
    ) -> Vec<String> {
        let mut header = Vec::new();
        if let Some(main) = profile.mappings().first() {
            if !main.filename.is_empty() {
                header.push(format!("File: {}", base_name(&main.filename)));
            }
            if !main.build_id.is_empty() {
                header.push(format!("Build ID: {}", main.build_id));
            }
        }
        let comments = profile.comments.iter().filter(|c| !c.starts_with('#'));
        header.extend(comments.cloned());
        if let Some(sample_type) = profile.sample_types().get(index)
            && !sample_type.r#type.is_empty()
        {
            header.push(format!("Type: {}", sample_type.r#type));
        }
        if profile.time_nanos != 0 {
            header.push(format!("Time: {}", UtcTime(profile.time_nanos).heading()));
        }
        let total = self.value(self.total);
        if profile.duration_nanos != 0 {
            let duration = label(profile.duration_nanos, "nanoseconds", "auto");
            let ratio = match scale(self.total, &self.unit, "nanoseconds") {
                (nanos, unit) if unit == "ns" && nanos != 0.0 => {
                    format!("({})", percentage(nanos as i64, profile.duration_nanos))
                }
                _ => String::new(),
            };
            header.push(format!(
                "Duration: {duration}, Total samples = {total} {ratio}"
            ));
        }
        let shown = self
            .rows
            .iter()
            .fold(0i64, |sum, row| sum.saturating_add(row.flat));
        header.push(format!(
            "Showing nodes accounting for {}, {} of {total} total",
            self.value(shown),
            percentage(shown, self.total).trim(),
        ));
        if self.total != 0 {
            if dropped > 0 {
                let nodes = if dropped > 1 { "nodes" } else { "node" };
                let cutoff = (self.total as f64 * NODE_FRACTION) as i64;
                header.push(format!(
                    "Dropped {dropped} {nodes} (cum <= {})",
                    self.value(cutoff)
                ));
            }
            if !self.rows.is_empty() && self.rows.len() < kept {
                header.push(format!(
                    "Showing top {} nodes out of {kept}",
                    self.rows.len()
                ));
            }
        }
        header
    }
}

impl fmt::Display for Top {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for line in &self.header {
            writeln!(f, "{}", Escaped(line))?;
        }
        writeln!(f, "      flat  flat%   sum%        cum   cum%")?;
        let mut sum = 0i64;
        for row in &self.rows {
            sum = sum.saturating_add(row.flat);
            writeln!(
                f,
                "{:>10} {} {} {:>10} {}  {}{}",
                Escaped(&self.value(row.flat)).to_string(),
                percentage(row.flat, self.total),
                percentage(sum, self.total),
                Escaped(&self.value(row.cum)).to_string(),
                percentage(row.cum, self.total),
                Escaped(&row.name),
                row.inline
            )?;
        }
        Ok(())
    }
}
