//! The comparison as a Markdown page.

use std::{fmt::Write, path::Path};

use super::{Compared, Comparison, paired::Estimate, speed::BATCH};
use crate::evaluate::metrics::Figures;

/// Headings of the groups, in the order of `ModelFigures::groups`.
const HEADINGS: [&str; 4] = ["rating of the mover", "ply", "share of the initial time left", "time class"];

impl Comparison {
    /// The page, with the picture where there is one: its path and the page's.
    pub fn page(&self, picture: Option<(&Path, &Path)>) -> String {
        let mut text = String::from("# Models of human moves compared\n\n");
        self.judged(&mut text);
        self.overall(&mut text);
        self.differences(&mut text);
        if let Some((picture, page)) = picture {
            let beside = picture.parent() == page.parent();
            let name = if beside { picture.file_name().map(Path::new).unwrap_or(picture) } else { picture };
            line(&mut text, &format!("![Accuracy, likelihood and agreement]({})\n", name.display()));
        }
        for (number, heading) in HEADINGS.iter().enumerate() {
            self.groups(&mut text, heading, number);
        }
        self.agreement(&mut text);
        self.cited(&mut text);
        text
    }

    fn first(&self) -> &str {
        self.models.first().map_or("", |model| model.figures.name.as_str())
    }

    fn judged(&self, text: &mut String) {
        for file in &self.judged {
            line(text, &format!("- `{}`: {} decisions of {} games", file.file, file.decisions, file.games));
        }
        line(
            text,
            &format!(
                "\nEvery model judged the same decisions, every move of both players. Top-1 and top-5 are the shares in \
                 which the move played was the most probable or among the five most probable; NLL is the mean negative \
                 log-likelihood in nats of the move played, over probabilities of the legal moves; ECE the expected \
                 calibration error of the most probable move. Intervals hold 95% and come from resampling players. \
                 Positions a second are those of one thread, {BATCH} at once.\n"
            ),
        );
    }

    fn overall(&self, text: &mut String) {
        line(text, "## All decisions\n");
        let heads = ["model", "encoding", "top-1 %", "95%", "top-5 %", "NLL", "ECE", "positions/s"].map(str::to_owned);
        let rows = self.models.iter().map(|model| {
            let Figures { top1, top1_ci: [low, high], top5, nll, ece, .. } = model.figures.overall;
            vec![
                model.figures.name.clone(),
                format!("`{}`", model.encoding),
                format!("{top1:.2}"),
                format!("{low:.2} to {high:.2}"),
                format!("{top5:.2}"),
                format!("{nll:.4}"),
                format!("{ece:.2}"),
                format!("{:.0}", model.positions_per_second),
            ]
        });
        table(text, &heads, 2, rows);
    }

    fn differences(&self, text: &mut String) {
        if self.models.len() < 2 {
            return;
        }
        line(text, &format!("## Beside {}\n", self.first()));
        line(
            text,
            "What each model is better (top-1, points) and more surprised (NLL, nats). The file of figures has all pairs.\n",
        );
        let rows = self.differences.iter().filter(|pair| pair.first == self.first()).map(|pair| {
            let ([low, high], nll) = (pair.top1.ci, pair.nll);
            vec![
                pair.second.clone(),
                shown(Estimate { value: -pair.top1.value, ci: [-high, -low] }, 2),
                shown(Estimate { value: -nll.value, ci: [-nll.ci[1], -nll.ci[0]] }, 4),
            ]
        });
        table(text, &["model", "top-1", "NLL"].map(str::to_owned), 1, rows);
    }

    fn groups(&self, text: &mut String, heading: &str, number: usize) {
        line(text, &format!("## By {heading}\n\nTop-1 % / top-5 % / NLL.\n"));
        let group = |model: &Compared| {
            let groups = model.figures.groups().into_iter().skip(number).take(1);
            let named =
                groups.flat_map(|(names, figures)| names.into_iter().map(move |name| (name, figures.get(name))));
            named.filter_map(|(name, figures)| Some((name, figures?.clone()))).collect::<Vec<_>>()
        };
        let columns = self.models.iter().map(group).collect::<Vec<_>>();
        let first = columns.first().cloned().unwrap_or_default();
        let heads = first.iter().map(|(name, figures)| format!("{name} (n={})", figures.n));
        let heads = std::iter::once("model".to_owned()).chain(heads).collect::<Vec<_>>();
        let rows = self.models.iter().zip(&columns).map(|(model, figures)| {
            let cell = |(_, figures): &(&str, Figures)| {
                format!("{:.1} / {:.1} / {:.3}", figures.top1, figures.top5, figures.nll)
            };
            std::iter::once(model.figures.name.clone()).chain(figures.iter().map(cell)).collect()
        });
        table(text, &heads, 1, rows);
    }

    fn agreement(&self, text: &mut String) {
        line(text, "## Agreement\n\nPercentage of decisions in which the most probable moves are the same.\n");
        let names = self.models.iter().map(|model| model.figures.name.clone());
        let heads = std::iter::once(String::new()).chain(names.clone()).collect::<Vec<_>>();
        let rows = names
            .zip(&self.agreement)
            .map(|(name, row)| std::iter::once(name).chain(row.iter().map(|share| format!("{share:.1}"))).collect());
        table(text, &heads, 1, rows);
    }

    fn cited(&self, text: &mut String) {
        if self.cited.is_empty() {
            return;
        }
        line(
            text,
            "## Published figures\n\nOf other games and conditions, as their authors give them; not measured here.\n",
        );
        let rows = self.cited.iter().map(|cited| {
            vec![cited.model.clone(), cited.figure.clone(), cited.conditions.clone(), cited.source.clone()]
        });
        table(text, &["model", "figure", "conditions", "source"].map(str::to_owned), 4, rows);
    }
}

/// A figure with its interval; bold where that leaves out zero.
fn shown(estimate: Estimate, digits: usize) -> String {
    let Estimate { value, ci: [low, high] } = estimate;
    let mark = if estimate.is_certain() { "**" } else { "" };
    format!("{mark}{value:+.digits$}{mark} ({low:+.digits$} to {high:+.digits$})")
}

fn line(text: &mut String, line: &str) {
    let _ = writeln!(text, "{line}"); // Writing to a String cannot fail.
}

/// A table whose first columns hold words, the others numbers.
fn table(text: &mut String, heads: &[String], words: usize, rows: impl Iterator<Item = Vec<String>>) {
    let rule = (0..heads.len()).map(|column| if column < words { "---" } else { "--:" }).collect::<Vec<_>>();
    line(text, &format!("| {} |\n| {} |", heads.join(" | "), rule.join(" | ")));
    rows.for_each(|row| line(text, &format!("| {} |", row.join(" | "))));
    text.push('\n');
}
