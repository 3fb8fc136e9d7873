//! `evaluate --reranker`: table, JSON and picture of what re-rankers gain.

use std::{
    collections::BTreeMap,
    fmt::Write,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, bail};
use clap::Args;
use serde::{Deserialize, Serialize};

use super::{
    judge::{self, Contestant, Judged, Styles, Verdict},
    known::{Known, Prior},
    slices::{self, Gain, Pair},
};
use crate::{
    annotate::manifest::Manifest,
    picture::{self, Bars},
    prepare::write_atomically,
};

/// Options of `evaluate` for re-rankers.
#[derive(Args, Clone, Debug, Default)]
pub struct Options {
    /// Re-rankers to judge, ONNX files or NAME=FILE, on annotated decisions instead of games
    #[arg(long = "reranker", num_args = 1.., requires_all = ["evidence", "data"])]
    pub rerankers: Vec<String>,
    /// Folders of evidence of held-out decisions, as `annotate` writes them
    #[arg(long, num_args = 1..)]
    pub evidence: Vec<PathBuf>,
    /// Folder of shards of the evidence's games
    #[arg(long)]
    pub data: Option<PathBuf>,
    /// Depth whose scores are shown; the deepest when not given
    #[arg(long)]
    pub depth: Option<u8>,
    /// Folders of styles, which are judged against the generic player
    #[arg(long, num_args = 1..)]
    pub styles: Vec<PathBuf>,
}

/// Figures of re-rankers on identical decisions.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Report {
    /// Name of the prior.
    pub prior: String,
    /// The engines of the evidence.
    pub engines: Vec<String>,
    /// Depth whose scores were shown; absent for the deepest.
    pub depth: Option<u8>,
    /// Decisions.
    pub n: usize,
    /// Percentage of the moves played that are among the candidates.
    pub coverage: f64,
    /// Mean nodes of the searches.
    pub nodes: f64,
    /// One entry for each re-ranker, with and without evidence.
    pub rerankers: Vec<Figures>,
}

/// Figures of one re-ranker.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Figures {
    /// Its name.
    pub name: String,
    /// What it gains over the prior.
    pub overall: Gain,
    /// What it gains over the first re-ranker; absent for the first itself.
    pub over_first: Option<Gain>,
    /// What its styles gain over itself as the generic player, where the player has one.
    pub identity: Option<Gain>,
    /// What it gains in slices.
    pub slices: BTreeMap<String, BTreeMap<String, Gain>>,
    /// Largest distance of a decision's total probability from 1.
    pub mass_error: f64,
    /// Largest change of a non-candidate's share among the non-candidates.
    pub rest_error: f64,
}

/// Judges re-rankers, prints the table, and writes JSON and picture where asked.
///
/// # Errors
///
/// When games, evidence, prior or re-rankers cannot be read.
pub fn run(
    options: &Options,
    models: &[PathBuf],
    samples: usize,
    json: Option<&Path>,
    drawing: Option<&Path>,
) -> Result<Report> {
    let [model] = models else { bail!("--reranker needs exactly one --model, the prior") };
    let mut prior = Prior::open(model)?;
    let data = options.data.as_deref().context("--reranker needs --data, the shards of the games")?;
    let known = prior.join(data, &options.evidence)?;
    if known.is_empty() {
        bail!("the evidence holds no decision");
    }
    let mut contestants = contestants(options)?;
    let judged = judge::judge(&mut contestants, &known, options.depth.unwrap_or(u8::MAX))?;
    let engines = options.evidence.iter().map(|folder| Ok(Manifest::read(folder)?.engine));
    let covered = judged.iter().filter(|judged| judged.candidate.is_some()).count();
    let report = Report {
        prior: prior.metadata().name.clone(),
        engines: engines.collect::<Result<_>>()?,
        depth: options.depth,
        n: known.len(),
        coverage: 100.0 * covered as f64 / known.len().max(1) as f64,
        nodes: judged.iter().map(|judged| judged.nodes as f64).sum::<f64>() / known.len().max(1) as f64,
        rerankers: contestants
            .iter()
            .enumerate()
            .map(|(number, contestant)| figures(contestant, number, &known, &judged, samples))
            .collect(),
    };
    print!("{}", report.table());
    if let Some(path) = json {
        write_atomically(path, &serde_json::to_vec_pretty(&report)?)?;
    }
    if let Some(path) = drawing {
        report.picture(path)?;
    }
    Ok(report)
}

/// Each re-ranker with the evidence, without it, and with its styles: in this order, and only if it has any.
fn contestants(options: &Options) -> Result<Vec<Contestant>> {
    let mut contestants = Vec::new();
    for text in &options.rerankers {
        let (name, path) = match text.split_once('=') {
            Some((name, path)) => (name.to_owned(), PathBuf::from(path)),
            None => {
                let path = PathBuf::from(text);
                (path.file_stem().unwrap_or_default().to_string_lossy().into_owned(), path)
            }
        };
        let generic = Some(contestants.len());
        contestants.push(Contestant::open(&name, &path)?);
        contestants.push(Contestant { engine: false, ..Contestant::open(&format!("{name}, engine hidden"), &path)? });
        for folder in &options.styles {
            let from = folder.file_name().unwrap_or_default().to_string_lossy();
            let own = Contestant::open(&format!("{name}, {from}"), &path)?;
            let styles = Styles::read(folder, &own.session.metadata().name)?;
            contestants.push(Contestant { styles, generic, ..own });
        }
    }
    Ok(contestants)
}

fn figures(contestant: &Contestant, number: usize, known: &[Known], judged: &[Judged], samples: usize) -> Figures {
    let verdict = |judged: &Judged| judged.reranked.get(number).copied();
    let pair = |judged: &Judged| {
        let own = verdict(judged)?;
        Some(Pair { player: judged.player, nll: [judged.prior, own.nll], top: [judged.prior_top, own.top] })
    };
    let both = || known.iter().zip(judged);
    let slices = slices::kinds().into_iter().map(|(kind, slices)| {
        let gains = slices.into_iter().map(|(name, keep)| {
            let kept = both().filter(|(known, judged)| keep(known, judged));
            (name, Gain::of(kept.filter_map(|(_, judged)| pair(judged)), samples))
        });
        (kind.to_owned(), gains.filter(|(_, gain)| gain.n > 0).collect())
    });
    let identity = both().filter_map(|(known, judged)| {
        contestant.styles.of(&known.player)?;
        let (generic, own) = (judged.reranked.get(contestant.generic?)?, verdict(judged)?);
        Some(Pair { player: judged.player, nll: [generic.nll, own.nll], top: [generic.top, own.top] })
    });
    let identity = Gain::of(identity, samples);
    let over_first = judged.iter().filter_map(|judged| {
        let (first, own) = (judged.reranked.first()?, verdict(judged)?);
        Some(Pair { player: judged.player, nll: [first.nll, own.nll], top: [first.top, own.top] })
    });
    let worst = |of: fn(&Verdict) -> f64| judged.iter().filter_map(verdict).map(|own| of(&own)).fold(0.0, f64::max);
    Figures {
        name: contestant.name.clone(),
        overall: Gain::of(judged.iter().filter_map(pair), samples),
        over_first: (number > 0).then(|| Gain::of(over_first, samples)),
        identity: (identity.n > 0).then_some(identity),
        slices: slices.collect(),
        mass_error: worst(|own| (own.mass - 1.0).abs()),
        rest_error: worst(|own| own.moved),
    }
}

impl Report {
    /// The figures as text.
    pub fn table(&self) -> String {
        let mut text = format!(
            "prior {}, {} decisions, {:.2}% of the moves played among the candidates, {:.0} nodes a search by {}\n\n",
            self.prior,
            self.n,
            self.coverage,
            self.nodes,
            self.engines.join(", ")
        );
        let _ =
            writeln!(text, "{:<52} {:>7} {:>8} {:>8} {:>8} {:>18}", "", "n", "prior", "NLL", "gain %", "95% interval");
        for figures in &self.rerankers {
            line(&mut text, &figures.name, &figures.overall);
            if let Some(gain) = &figures.over_first {
                line(&mut text, "  over the first re-ranker", gain);
            }
            if let Some(identity) = &figures.identity {
                line(&mut text, "  over the generic player", identity);
            }
            for (kind, slices) in &figures.slices {
                for (name, gain) in slices {
                    line(&mut text, &format!("  {kind}: {name}"), gain);
                }
            }
            let _ = writeln!(
                text,
                "  total mass is off by at most {:.1e}, shares of the other moves by {:.1e}",
                figures.mass_error, figures.rest_error
            );
        }
        text
    }

    /// Draws the gain by rating and by rank.
    ///
    /// # Errors
    ///
    /// When the file cannot be written.
    pub fn picture(&self, path: &Path) -> Result<()> {
        let names = self.rerankers.iter().map(|figures| figures.name.clone()).collect::<Vec<_>>();
        let panels = ["rating", "rank of the move played", "phase", "move played"].map(|kind| {
            let mut labels: Vec<String> = Vec::new();
            for figures in &self.rerankers {
                let names = figures.slices.get(kind).into_iter().flat_map(BTreeMap::keys);
                labels.extend(names.filter(|name| !labels.contains(name)).cloned().collect::<Vec<_>>());
            }
            let groups = labels.into_iter().map(|label| {
                let gain = |figures: &Figures| figures.slices.get(kind)?.get(&label).map(|own| (own.gain, own.gain_ci));
                (label.clone(), self.rerankers.iter().map(gain).collect())
            });
            Bars { title: format!("NLL gain over the prior (%) by {kind}"), groups: groups.collect() }
        });
        picture::bars(path, &names, &panels)
    }
}

fn line(text: &mut String, name: &str, gain: &Gain) {
    let [low, high] = gain.gain_ci;
    let _ = writeln!(
        text,
        "{name:<52} {:>7} {:>8.4} {:>8.4} {:>8.2} {:>8.2} - {:>7.2}",
        gain.n, gain.prior_nll, gain.nll, gain.gain, low, high
    );
}
