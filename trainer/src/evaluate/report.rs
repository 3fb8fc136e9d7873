//! The evaluation as table, JSON and picture.

use std::{collections::BTreeMap, fmt::Write, path::Path};

use anyhow::Result;
use serde::{Deserialize, Serialize};
use zeitnot_encoding::clock::TimeClass;

use super::{
    Options,
    judge::{CLOCKS, Judged, Verdicts},
    metrics::Figures,
};
use crate::picture::{self, Bars};

const RATINGS: [&str; 11] = [
    "<1100",
    "1100-1199",
    "1200-1299",
    "1300-1399",
    "1400-1499",
    "1500-1599",
    "1600-1699",
    "1700-1799",
    "1800-1899",
    "1900-1999",
    ">=2000",
];
const PHASES: [&str; 3] = ["ply 0-29", "ply 30-79", "ply 80+"];
const UNKNOWN_CLOCK: &str = "unknown";

/// Figures of several models on identical decisions.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Evaluation {
    /// One entry a model, in the order given.
    pub models: Vec<ModelFigures>,
}

/// Figures of one model.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct ModelFigures {
    /// The model's name.
    pub name: String,
    /// Its file's name.
    pub file: String,
    /// All decisions, with the last of the history lengths asked for.
    pub overall: Figures,
    /// By the mover's rating.
    pub by_rating: BTreeMap<String, Figures>,
    /// By ply.
    pub by_phase: BTreeMap<String, Figures>,
    /// By the share of the initial time the mover has left.
    pub by_clock: BTreeMap<String, Figures>,
    /// By the game's time class.
    #[serde(default)]
    pub by_time_class: BTreeMap<String, Figures>,
    /// All decisions with only so many recent moves shown.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub by_history: BTreeMap<String, Figures>,
}

impl Evaluation {
    /// Sums up verdicts.
    pub fn of(verdicts: &Verdicts, options: &Options) -> Self {
        let count = verdicts.models.len();
        let models = verdicts.models.iter().zip(&options.models).enumerate().map(|(model, (name, path))| {
            let slot = |length: usize| length * count + model;
            let last = slot(options.history_lengths.len().saturating_sub(1));
            let group = |keep: &dyn Fn(&Judged) -> bool, slot: usize| {
                let kept = verdicts.decisions.iter().filter(|judged| keep(judged));
                let scores = kept.filter_map(|judged| Some((judged.player, *judged.scores.get(slot)?)));
                Figures::of(scores, options.samples)
            };
            let groups = |names: &[&str], of: fn(&Judged) -> Option<usize>| {
                let figures = names
                    .iter()
                    .enumerate()
                    .map(|(number, name)| ((*name).to_owned(), group(&|judged| of(judged) == Some(number), last)));
                figures.filter(|(_, figures)| figures.n > 0).collect::<BTreeMap<_, _>>()
            };
            let mut by_clock = groups(&CLOCKS, |judged| judged.clock);
            let unknown = group(&|judged| judged.clock.is_none(), last);
            if unknown.n > 0 {
                by_clock.insert(UNKNOWN_CLOCK.to_owned(), unknown);
            }
            let by_history = options.history_lengths.iter().enumerate();
            ModelFigures {
                name: name.clone(),
                file: path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default(),
                overall: group(&|_| true, last),
                by_rating: groups(&RATINGS, |judged| Some(judged.rating)),
                by_phase: groups(&PHASES, |judged| Some(judged.phase)),
                by_clock,
                by_time_class: groups(&TimeClass::ALL.map(TimeClass::name), |judged| judged.time_class),
                by_history: by_history
                    .map(|(number, length)| (length.to_string(), group(&|_| true, slot(number))))
                    .collect(),
            }
        });
        Evaluation { models: models.collect() }
    }

    /// All figures as text.
    pub fn table(&self) -> String {
        let mut text = String::new();
        for model in &self.models {
            let _ = writeln!(text, "\n{} ({})", model.name, model.file); // Writing to a String cannot fail.
            let _ = writeln!(
                text,
                "{:<12} {:>8} {:>7} {:>15} {:>7} {:>7} {:>6}",
                "", "n", "top-1", "95% interval", "top-5", "nll", "ece"
            );
            line(&mut text, "overall", &model.overall);
            for (names, figures) in model.groups() {
                text.push('\n');
                names
                    .iter()
                    .filter_map(|name| Some((name, figures.get(*name)?)))
                    .for_each(|(name, f)| line(&mut text, name, f));
            }
            text.push('\n');
            let mut lengths = model.by_history.iter().collect::<Vec<_>>();
            lengths.sort_by_key(|(length, _)| length.parse::<usize>().unwrap_or_default());
            lengths.iter().for_each(|(length, figures)| line(&mut text, &format!("history {length}"), figures));
        }
        text
    }

    /// Draws top-1 with intervals by rating, phase and clock.
    ///
    /// # Errors
    ///
    /// When the file cannot be written.
    pub fn picture(&self, path: &Path) -> Result<()> {
        let names = self.models.iter().map(|model| model.name.clone()).collect::<Vec<_>>();
        let panel = |title: &str, number: usize| {
            let columns =
                self.models.iter().filter_map(|model| model.groups().into_iter().nth(number)).collect::<Vec<_>>();
            let labels = columns.first().map(|(names, _)| names.clone()).unwrap_or_default();
            let values = labels.iter().map(|label| {
                let value = |figures: &&BTreeMap<String, Figures>| figures.get(*label).map(|f| (f.top1, f.top1_ci));
                ((*label).to_owned(), columns.iter().map(|(_, figures)| value(figures)).collect())
            });
            Bars { title: title.to_owned(), groups: values.collect() }
        };
        let panels = [
            panel("top-1 (%) by rating", 0),
            panel("by phase", 1),
            panel("by share of the clock left", 2),
            panel("by time class", 3),
            self.by_history(),
        ];
        picture::bars(path, &names, &panels)
    }
}

impl Evaluation {
    /// The panel of history lengths, shortest first.
    fn by_history(&self) -> Bars {
        let mut lengths = self.models.iter().flat_map(|model| model.by_history.keys()).collect::<Vec<_>>();
        lengths.sort_by_key(|length| length.parse::<usize>().unwrap_or_default());
        lengths.dedup();
        let group = |length: &String| {
            let value = |model: &ModelFigures| model.by_history.get(length).map(|f| (f.top1, f.top1_ci));
            (length.clone(), self.models.iter().map(value).collect())
        };
        Bars { title: "by number of recent moves shown".to_owned(), groups: lengths.into_iter().map(group).collect() }
    }
}

impl ModelFigures {
    /// Ratings, phases, clocks and time classes, with the names in order.
    pub(crate) fn groups(&self) -> [(Vec<&'static str>, &BTreeMap<String, Figures>); 4] {
        let clocks = CLOCKS.iter().copied().chain([UNKNOWN_CLOCK]).collect();
        [
            (RATINGS.to_vec(), &self.by_rating),
            (PHASES.to_vec(), &self.by_phase),
            (clocks, &self.by_clock),
            (TimeClass::ALL.map(TimeClass::name).to_vec(), &self.by_time_class),
        ]
    }
}

fn line(text: &mut String, name: &str, figures: &Figures) {
    let [low, high] = figures.top1_ci;
    let interval = format!("{low:.2} - {high:.2}");
    let Figures { n, top1, top5, nll, ece, .. } = figures;
    let _ = writeln!(text, "{name:<12} {n:>8} {top1:>7.2} {interval:>15} {top5:>7.2} {nll:>7.3} {ece:>6.2}");
}
