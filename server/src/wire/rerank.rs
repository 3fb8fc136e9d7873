//! What a request says of re-ranking and of the mover's style.

use std::time::Duration;

use zeitnot_encoding::rerank::{LARGEST, STYLE, Style};
use zeitnot_proto::v1;

use crate::{
    error::Violation,
    rerank::{Asked, Mode, StyleAsked, budget::Wish},
};

/// Deepest search that may be asked for; no engine goes deeper.
const DEEPEST: u32 = 245;
/// Longest search that may be asked for.
const LONGEST: Duration = Duration::from_secs(86_400);

/// Reads both, and names everything that is wrong with them.
pub(super) fn asked(rerank: Option<v1::Rerank>, style: Option<v1::Style>, wrong: &mut Vec<Violation>) -> Asked {
    let rerank = rerank.unwrap_or_default();
    if rerank.depth > DEEPEST {
        wrong.push(Violation::new("rerank.depth", format!("{} is more than {DEEPEST}", rerank.depth)));
    }
    let wish = Wish { depth: rerank.depth, nodes: rerank.nodes, movetime: movetime(rerank.movetime, wrong) };
    Asked { mode: mode(rerank.mode, wrong), wish, style: style.and_then(|style| read(style, wrong)) }
}

fn mode(mode: i32, wrong: &mut Vec<Violation>) -> Option<Mode> {
    match v1::RerankMode::try_from(mode) {
        Ok(v1::RerankMode::Unspecified) => None,
        Ok(v1::RerankMode::Off) => Some(Mode::Off),
        Ok(v1::RerankMode::Auto) => Some(Mode::Auto),
        Ok(v1::RerankMode::Required) => Some(Mode::Required),
        Err(_) => {
            wrong.push(Violation::new("rerank.mode", format!("{mode} is not a mode")));
            None
        }
    }
}

fn movetime(movetime: Option<prost_types::Duration>, wrong: &mut Vec<Violation>) -> Option<Duration> {
    let movetime = movetime?;
    let read = Duration::try_from(movetime).ok().filter(|time| !time.is_zero() && *time <= LONGEST);
    if read.is_none() {
        let problem = format!("{movetime} is not above 0 and at most {} seconds", LONGEST.as_secs());
        wrong.push(Violation::new("rerank.movetime", problem));
    }
    read
}

fn read(style: v1::Style, wrong: &mut Vec<Violation>) -> Option<StyleAsked> {
    use v1::style::Style::{Name, Vector};
    match style.style? {
        Name(name) if name.is_empty() => {
            wrong.push(Violation::new("mover.style.name", "is empty; leave out style for a generic player"));
            None
        }
        Name(name) => Some(StyleAsked::Name(name)),
        Vector(vector) => match Style::try_from(vector.values.as_slice()) {
            Ok(values) if values.iter().all(|value| value.abs() <= LARGEST) => {
                Some(StyleAsked::Vector(Box::new(values)))
            }
            _ => {
                let problem = format!("needs {STYLE} numbers from -{LARGEST} to {LARGEST}");
                wrong.push(Violation::new("mover.style.vector.values", problem));
                None
            }
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn vector(values: Vec<f32>) -> Option<v1::Style> {
        Some(v1::Style { style: Some(v1::style::Style::Vector(v1::StyleVector { values })) })
    }

    #[test]
    fn everything_that_is_wrong_is_named() {
        let fields = |rerank, style| {
            let mut wrong = Vec::new();
            asked(Some(rerank), style, &mut wrong);
            wrong.into_iter().map(|violation| violation.field).collect::<Vec<_>>()
        };
        let movetime = Some(prost_types::Duration { seconds: -1, nanos: 0 });
        let rerank = v1::Rerank { mode: 9, depth: 1000, nodes: u64::MAX, movetime };
        assert_eq!(
            fields(rerank, vector(vec![0.0; 31])),
            ["rerank.depth", "rerank.movetime", "rerank.mode", "mover.style.vector.values"]
        );
        let zero = v1::Rerank { movetime: Some(prost_types::Duration::default()), ..v1::Rerank::default() };
        assert_eq!(fields(zero, vector([vec![0.0; 31], vec![f32::NAN]].concat())).len(), 2);
        let nameless = Some(v1::Style { style: Some(v1::style::Style::Name(String::new())) });
        assert_eq!(fields(v1::Rerank::default(), nameless), ["mover.style.name"]);
    }

    #[test]
    fn what_is_left_out_is_left_to_the_server() {
        let mut wrong = Vec::new();
        assert_eq!(asked(None, Some(v1::Style::default()), &mut wrong), Asked::default());
        let style = asked(None, vector(vec![0.5; 32]), &mut wrong).style;
        assert_eq!((style, wrong), (Some(StyleAsked::Vector(Box::new([0.5; 32]))), vec![]));
    }
}
