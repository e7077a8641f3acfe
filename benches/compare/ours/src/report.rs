//! What is printed.

use crate::{Row, Target};

/// How far the peer may be from its figure of before for the run to count.
const DRIFT: f64 = 0.3;

pub struct Line {
    row: &'static Row,
    ours: f64,
    /// `None`: the peer does not know the row.
    peer: Option<f64>,
    /// From the smallest to the largest ratio of a round; of figures of ours, when they are judged alone.
    spread: (f64, f64),
    /// Other forms in Rust, and their figures.
    beside: Vec<(&'static str, f64)>,
}

impl Line {
    /// Of figures that were measured in turn.
    pub fn new(row: &'static Row, ours: &mut [f64], peer: &mut [f64], rivals: Vec<(&'static str, Vec<f64>)>) -> Self {
        let judged: Vec<f64> = match row.target {
            Target::Alone(_) => ours.to_vec(),
            _ => ours.iter().zip(peer.iter()).map(|(ours, peer)| ours / peer).collect(),
        };
        let spread = (judged.iter().copied().fold(f64::INFINITY, f64::min), judged.iter().copied().fold(0.0, f64::max));
        let peer = (!peer.is_empty()).then(|| median(peer));
        let beside = rivals.into_iter().map(|(name, mut figures)| (name, median(&mut figures))).collect();
        Self { row, ours: median(ours), peer, spread, beside }
    }

    /// To the peer's figure; not a number when there is none.
    fn ratio(&self) -> f64 {
        self.peer.map_or(f64::NAN, |peer| self.ours / peer)
    }

    fn is_ok(&self) -> bool {
        match self.row.target {
            Target::AtMost(most) => self.ratio() <= most,
            Target::AtLeast(least) => self.ratio() >= least,
            Target::Alone(most) => self.ours <= most,
        }
    }

    /// Of a row that the peer decides.
    fn has_drifted(&self) -> bool {
        self.peer.is_some_and(|peer| (peer / self.row.before - 1.0).abs() > DRIFT)
    }

    fn verdict(&self) -> &'static str {
        if self.is_ok() { "ok" } else { "SHORT" }
    }

    pub fn text(&self) -> String {
        let Row { id, what, unit, target, .. } = self.row;
        let target = match target {
            Target::AtMost(most) => format!("<={most}"),
            Target::AtLeast(least) => format!(">={least}"),
            Target::Alone(most) => format!("{most} {unit}"),
        };
        let peer = self.peer.map_or("-".to_owned(), shown);
        let ratio = if self.peer.is_some() { part(self.ratio()) } else { "-".to_owned() };
        let (ours, verdict) = (shown(self.ours), self.verdict());
        let (least, most) = (part(self.spread.0), part(self.spread.1));
        let beside: String = self.beside.iter().map(|(name, figure)| format!("; {name} {}", shown(*figure))).collect();
        format!(
            "{id} ours={ours} peer={peer} ratio={ratio} target={target} {verdict}  ({what}, {unit}; rounds {least} to {most}{beside})"
        )
    }

    fn json(&self) -> String {
        let Row { id, what, unit, target, before, .. } = self.row;
        let (rule, target) = match target {
            Target::AtMost(most) => ("at_most", most),
            Target::AtLeast(least) => ("at_least", least),
            Target::Alone(most) => ("alone_at_most", most),
        };
        let (ours, ok, drifted) = (self.ours, self.is_ok(), self.has_drifted());
        let peer = self.peer.map_or("null".to_owned(), |peer| peer.to_string());
        let ratio = if self.peer.is_some() { self.ratio().to_string() } else { "null".to_owned() };
        let before = if before.is_finite() { before.to_string() } else { "null".to_owned() };
        let (least, most) = self.spread;
        let beside: Vec<_> = self.beside.iter().map(|(name, figure)| format!(r#""{name}":{figure}"#)).collect();
        let beside = beside.join(",");
        format!(
            r#"{{"row":"{id}","what":"{what}","unit":"{unit}","ours":{ours},"peer":{peer},"ratio":{ratio},"ratio_least":{least},"ratio_most":{most},"rule":"{rule}","target":{target},"ok":{ok},"peer_before":{before},"peer_drifted":{drifted},"beside":{{{beside}}}}}"#
        )
    }
}

pub fn json(lines: &[Line]) -> String {
    let lines: Vec<_> = lines.iter().map(Line::json).collect();
    format!("[\n{}\n]", lines.join(",\n"))
}

pub fn summary(lines: &[Line]) -> String {
    let mut out = String::new();
    for line in lines.iter().filter(|line| line.has_drifted()) {
        let (id, peer, before) = (line.row.id, line.peer.map_or("-".to_owned(), shown), shown(line.row.before));
        out += &format!("void: {id}, because the peer's {peer} is more than 30 % off the {before} that the target was set by\n");
    }
    let ok = lines.iter().filter(|line| line.is_ok()).count();
    out + &format!("{ok} ok, {} short", lines.len() - ok)
}

fn median(figures: &mut [f64]) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures[figures.len() / 2]
}

fn shown(figure: f64) -> String {
    match figure {
        f if f >= 1e6 => format!("{:.2}M", f / 1e6),
        f if f >= 1e4 => format!("{:.0}k", f / 1e3),
        f => format!("{f:.1}"),
    }
}

/// A ratio; small ones with more digits.
fn part(ratio: f64) -> String {
    if ratio < 0.1 { format!("{ratio:.5}") } else { format!("{ratio:.2}") }
}
