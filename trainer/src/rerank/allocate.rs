//! `zeitnot-train allocate`: whether a search is worth its nodes, learnt and measured.
//!
//! On one half of the players a ridge regression learns what each depth gains, from what is known before the search; on
//! the other half its choices are compared, at equal mean nodes, with mixtures of fixed depths.

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, bail};
use clap::Args;
use serde::{Deserialize, Serialize};
use zeitnot_inference::{
    Allocator,
    allocation::{FEATURES, SearchOption, features},
};
use zeitnot_network::onnx;

use super::{
    judge::{self, Contestant},
    known::{Known, Prior},
};
use crate::{
    picture::{self, Curve},
    prepare::write_atomically,
};

/// Options of `allocate`.
#[derive(Args, Clone, Debug)]
pub struct Options {
    /// The re-ranker, an ONNX file
    #[arg(long)]
    pub reranker: PathBuf,
    /// The prior, an ONNX file
    #[arg(long)]
    pub model: PathBuf,
    /// Folder of shards of games
    #[arg(long)]
    pub data: PathBuf,
    /// Folders of evidence about them, of decisions that the re-ranker was not trained on
    #[arg(long, required = true, num_args = 1..)]
    pub evidence: Vec<PathBuf>,
    /// Depths to choose from
    #[arg(long, value_delimiter = ',', default_value = "2,4,6,8")]
    pub depths: Vec<u8>,
    /// Strength of the ridge
    #[arg(long, default_value_t = 10.0)]
    pub ridge: f64,
    /// Mean nodes, as a share of the deepest search's, that the price for serving is chosen by
    #[arg(long, default_value_t = 0.5)]
    pub budget: f64,
    /// Write the figures as JSON
    #[arg(long)]
    pub json: Option<PathBuf>,
    /// Draw the frontier as SVG
    #[arg(long)]
    pub picture: Option<PathBuf>,
    /// Write the re-ranker with the allocator in it, for serving
    #[arg(long)]
    pub out: Option<PathBuf>,
}

/// Mean nodes and NLL of a way to choose.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Point {
    /// Depth, of fixed depths; 0 without a search.
    pub depth: Option<u8>,
    /// Price of a million nodes in nats, of choices.
    pub price: Option<f64>,
    /// Mean nodes of a decision.
    pub nodes: f64,
    /// Mean NLL, in nats.
    pub nll: f64,
    /// NLL of the mixture of fixed depths with as many mean nodes, in nats.
    pub mixture: f64,
}

/// What the choices are worth.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Frontier {
    /// Decisions that the predictors were fitted on.
    pub fitted: usize,
    /// Decisions, of other players, that the figures are about.
    pub n: usize,
    /// Correlation of predicted and actual gain, by depth.
    pub correlation: Vec<(u8, f64)>,
    /// Always the same depth.
    pub fixed: Vec<Point>,
    /// Chosen by the predictors, by falling price.
    pub chosen: Vec<Point>,
    /// What is served.
    pub allocator: Allocator,
}

/// What a decision costs and gives at each depth.
struct Case {
    features: Vec<f64>,
    /// NLL without a search.
    base: f64,
    /// Nodes and NLL by depth.
    depths: Vec<(f64, f64)>,
}

/// Fits, measures, and writes what is asked for.
///
/// # Errors
///
/// When files cannot be read, or hold too few decisions.
pub fn run(options: &Options) -> Result<Frontier> {
    if !(options.ridge > 0.0 && options.ridge.is_finite()) {
        bail!("--ridge {} is not above 0", options.ridge);
    }
    if !(0.0..=1.0).contains(&options.budget) {
        bail!("--budget {} is not a share", options.budget);
    }
    let mut prior = Prior::open(&options.model)?;
    let known = prior.join(&options.data, &options.evidence)?;
    let depths = options.depths.iter().copied().collect::<BTreeSet<_>>().into_iter().collect::<Vec<_>>();
    let cases = cases(options, &known, &depths)?;
    let (fit, test): (Vec<_>, Vec<_>) = cases.iter().partition(|(half, _)| *half);
    let [fit, test] = [fit, test].map(|half| half.into_iter().map(|(_, case)| case).collect::<Vec<_>>());
    if fit.len() < 100 || test.len() < 100 {
        let (fit, test) = (fit.len(), test.len());
        bail!("{fit} and {test} decisions with evidence at each of the depths {depths:?} are too few; 100 are needed");
    }
    let mut allocator = learn(&fit, &depths, options.ridge);
    let fixed = fixed(&test, &depths);
    let prices = (0..40).map(|step| 30.0 * 0.7f64.powi(step)).collect::<Vec<_>>();
    let chosen = prices.iter().map(|&price| choose(&allocator, price, &test, &fixed)).collect::<Vec<_>>();
    // The price is chosen on the half that the predictors know, so that the figures of the other stay honest.
    let most = fit.iter().filter_map(|case| case.depths.last()).map(|(nodes, _)| nodes).sum::<f64>() / fit.len() as f64;
    let affordable = prices.iter().rev().find(|&&price| spent(&allocator, price, &fit) <= options.budget * most);
    allocator.price = affordable.or(prices.first()).copied().unwrap_or_default() as f32;
    let frontier = Frontier {
        fitted: fit.len(),
        n: test.len(),
        correlation: depths
            .iter()
            .enumerate()
            .map(|(place, &depth)| (depth, correlation(&allocator, place, &test)))
            .collect(),
        fixed,
        chosen,
        allocator,
    };
    print(&frontier);
    write(options, &frontier)?;
    Ok(frontier)
}

/// The decisions with evidence at every depth, and whether they belong to the half to fit on.
fn cases(options: &Options, known: &[Known], depths: &[u8]) -> Result<Vec<(bool, Case)>> {
    let mut contestants = [Contestant::open("re-ranker", &options.reranker)?];
    let mut by_depth = Vec::new();
    for &depth in depths {
        by_depth.push(judge::judge(&mut contestants, known, depth)?);
    }
    let case = |(place, known): (usize, &Known)| {
        let at = |depth: usize| by_depth.get(depth)?.get(place)?.reranked.first().map(|own| own.nll);
        let searched = depths.iter().enumerate().map(|(number, &depth)| {
            let search = known.evidence.at(depth)?;
            (search.depth == depth).then_some((search.nodes as f64, at(number)?))
        });
        let features = features(&known.candidates, known.indices.len(), known.history, &known.conditions);
        let case = Case {
            features: features.map(f64::from).to_vec(),
            base: by_depth.first()?.get(place)?.prior,
            depths: searched.collect::<Option<_>>()?,
        };
        // The pseudonyms are random, so that their bytes split the players.
        let half = known.player.1.bytes().fold(0u8, |sum, byte| sum.wrapping_mul(31).wrapping_add(byte)) % 2 == 0;
        Some((half, case))
    };
    Ok(known.iter().enumerate().filter_map(case).collect())
}

/// A ridge regression for each depth.
fn learn(cases: &[&Case], depths: &[u8], ridge: f64) -> Allocator {
    let options = depths.iter().enumerate().map(|(place, &depth)| {
        let rows = cases.iter().filter_map(|case| {
            let (_, nll) = case.depths.get(place)?;
            Some((case.features.as_slice(), case.base - nll))
        });
        let nodes = cases.iter().filter_map(|case| case.depths.get(place)).map(|(nodes, _)| nodes).sum::<f64>();
        SearchOption {
            depth: u32::from(depth),
            meganodes: (nodes / cases.len() as f64 / 1e6) as f32,
            weights: least_squares(rows, ridge).into_iter().map(|weight| weight as f32).collect(),
        }
    });
    Allocator { price: 0.0, options: options.collect() }
}

/// Weights that minimise squared errors plus `ridge` times their squared length, by Gaussian elimination. The matrix is
/// positive definite, so that no pivot is 0.
fn least_squares<'a>(rows: impl Iterator<Item = (&'a [f64], f64)>, ridge: f64) -> Vec<f64> {
    let size = FEATURES.len();
    // One row an equation, the right side last.
    let mut system = (0..size)
        .map(|i| (0..=size).map(|j| if i == j { ridge } else { 0.0 }).collect::<Vec<f64>>())
        .collect::<Vec<_>>();
    for (features, target) in rows {
        for (equation, own) in system.iter_mut().zip(features) {
            let right = features.iter().chain(std::iter::once(&target));
            equation.iter_mut().zip(right).for_each(|(cell, other)| *cell += own * other);
        }
    }
    for pivot in 0..size {
        let Some(chosen) = system.get(pivot).cloned() else { continue };
        let head = chosen.get(pivot).copied().unwrap_or(1.0);
        for (number, equation) in system.iter_mut().enumerate() {
            if number != pivot {
                let factor = equation.get(pivot).copied().unwrap_or_default() / head;
                equation.iter_mut().zip(&chosen).for_each(|(cell, other)| *cell -= factor * other);
            }
        }
    }
    let solution = |(number, equation): (usize, &Vec<f64>)| {
        equation.last().copied().unwrap_or_default() / equation.get(number).copied().unwrap_or(1.0)
    };
    system.iter().enumerate().map(solution).collect()
}

fn fixed(cases: &[&Case], depths: &[u8]) -> Vec<Point> {
    let count = cases.len() as f64;
    let base = cases.iter().map(|case| case.base).sum::<f64>() / count;
    let mut points = vec![Point { depth: Some(0), price: None, nodes: 0.0, nll: base, mixture: base }];
    for (place, &depth) in depths.iter().enumerate() {
        let own = cases.iter().filter_map(|case| case.depths.get(place));
        let (nodes, nll) = own.fold((0.0, 0.0), |(nodes, nll), own| (nodes + own.0, nll + own.1));
        points.push(Point {
            depth: Some(depth),
            price: None,
            nodes: nodes / count,
            nll: nll / count,
            mixture: nll / count,
        });
    }
    let mixtures = points.iter().map(|point| mixture(&points, point.nodes)).collect::<Vec<_>>();
    points.iter_mut().zip(mixtures).for_each(|(point, mixture)| point.mixture = mixture);
    points
}

/// The best NLL of a mixture of two fixed depths that costs at most so many mean nodes.
fn mixture(fixed: &[Point], nodes: f64) -> f64 {
    let mut best =
        fixed.iter().filter(|point| point.nodes <= nodes).map(|point| point.nll).fold(f64::INFINITY, f64::min);
    for low in fixed.iter().filter(|point| point.nodes <= nodes) {
        for high in fixed.iter().filter(|point| point.nodes > nodes) {
            let share = (nodes - low.nodes) / (high.nodes - low.nodes);
            best = best.min(low.nll + share * (high.nll - low.nll));
        }
    }
    best
}

/// Place of the depth chosen for a case; none for no search.
fn choice(allocator: &Allocator, price: f64, case: &Case) -> Option<usize> {
    let features = case.features.iter().map(|&feature| feature as f32).collect::<Vec<_>>();
    let depth = Allocator { price: price as f32, ..allocator.clone() }.choose(&features)?;
    allocator.options.iter().position(|option| option.depth == depth)
}

fn spent(allocator: &Allocator, price: f64, cases: &[&Case]) -> f64 {
    let nodes = cases.iter().map(|case| choice(allocator, price, case).and_then(|place| case.depths.get(place)));
    nodes.map(|own| own.map_or(0.0, |(nodes, _)| *nodes)).sum::<f64>() / cases.len() as f64
}

fn choose(allocator: &Allocator, price: f64, cases: &[&Case], fixed: &[Point]) -> Point {
    let own = |case: &&Case| choice(allocator, price, case).and_then(|place| case.depths.get(place).copied());
    let (nodes, nll) = cases.iter().fold((0.0, 0.0), |(nodes, nll), case| {
        let (more, nats) = own(case).unwrap_or((0.0, case.base));
        (nodes + more, nll + nats)
    });
    let count = cases.len() as f64;
    let nodes = nodes / count;
    Point { depth: None, price: Some(price), nodes, nll: nll / count, mixture: mixture(fixed, nodes) }
}

fn correlation(allocator: &Allocator, place: usize, cases: &[&Case]) -> f64 {
    let Some(option) = allocator.options.get(place) else { return 0.0 };
    let pairs = cases.iter().filter_map(|case| {
        let features = case.features.iter().map(|&feature| feature as f32).collect::<Vec<_>>();
        Some((f64::from(option.gain(&features)), case.base - case.depths.get(place)?.1))
    });
    let (mut n, mut x, mut y, mut xx, mut yy, mut xy) = (0.0, 0.0, 0.0, 0.0, 0.0, 0.0);
    for (a, b) in pairs {
        (n, x, y, xx, yy, xy) = (n + 1.0, x + a, y + b, xx + a * a, yy + b * b, xy + a * b);
    }
    let spread = ((n * xx - x * x) * (n * yy - y * y)).sqrt();
    if spread > 0.0 { (n * xy - x * y) / spread } else { 0.0 }
}

fn print(frontier: &Frontier) {
    println!("fitted on {} decisions, measured on {} of other players", frontier.fitted, frontier.n);
    println!("{:>8} {:>10} {:>10} {:>8} {:>10}", "depth", "price", "nodes", "NLL", "mixture");
    for point in frontier.fixed.iter().chain(&frontier.chosen) {
        let depth = point.depth.map_or_else(String::new, |depth| depth.to_string());
        let price = point.price.map_or_else(String::new, |price| format!("{price:.4}"));
        println!("{depth:>8} {price:>10} {:>10.0} {:>8.4} {:>10.4}", point.nodes, point.nll, point.mixture);
    }
    println!("served at a price of {:.4} nats a million nodes", frontier.allocator.price);
}

fn write(options: &Options, frontier: &Frontier) -> Result<()> {
    if let Some(path) = &options.json {
        write_atomically(path, &serde_json::to_vec_pretty(frontier)?)?;
    }
    if let Some(path) = &options.picture {
        draw(frontier, path)?;
    }
    if let Some(path) = &options.out {
        let bytes = std::fs::read(&options.reranker).with_context(|| options.reranker.display().to_string())?;
        let text = serde_json::to_string(&frontier.allocator)?;
        write_atomically(path, &onnx::with_entry(&bytes, "zeitnot.allocator", &text)?)?;
    }
    Ok(())
}

fn draw(frontier: &Frontier, path: &Path) -> Result<()> {
    let points = |points: &[Point], nll: fn(&Point) -> f64| {
        let mut points = points.iter().map(|point| (point.nodes, nll(point))).collect::<Vec<_>>();
        points.sort_by(|a, b| a.0.total_cmp(&b.0));
        points
    };
    let curves = vec![
        Curve { name: "chosen before the search".to_owned(), points: points(&frontier.chosen, |point| point.nll) },
        Curve { name: "mixtures of fixed depths".to_owned(), points: points(&frontier.chosen, |point| point.mixture) },
        Curve { name: "fixed depths".to_owned(), points: points(&frontier.fixed, |point| point.nll) },
    ];
    picture::curves(path, &[("NLL by mean nodes", "nodes", curves)])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn case(features: [f64; 2], base: f64, depths: [(f64, f64); 2]) -> Case {
        let mut padded = features.to_vec();
        padded.resize(FEATURES.len(), 0.0);
        Case { features: padded, base, depths: depths.to_vec() }
    }

    #[test]
    fn the_ridge_finds_a_linear_rule_and_shrinks_with_its_strength() {
        let rows = (0..50).map(|i| {
            (case([1.0, f64::from(i) / 10.0], 0.0, [(0.0, 0.0); 2]).features, 0.5 + 0.2 * f64::from(i) / 10.0)
        });
        let rows = rows.collect::<Vec<_>>();
        let fit = |ridge| least_squares(rows.iter().map(|(features, target)| (features.as_slice(), *target)), ridge);
        let weights = fit(1e-6);
        assert!((weights[0] - 0.5).abs() < 1e-4 && (weights[1] - 0.2).abs() < 1e-4, "{weights:?}");
        assert!(fit(1e6)[1].abs() < 0.01);
    }

    #[test]
    fn a_choice_by_what_is_known_beats_mixtures_where_gains_can_be_foreseen() {
        // Where the second feature is 1, the deep search gains a nat; elsewhere no search gains anything.
        let cases = (0..200).map(|i| {
            let hard = f64::from(i % 2);
            case([1.0, hard], 2.0, [(100.0, 2.0), (10_000.0, 2.0 - hard)])
        });
        let cases = cases.collect::<Vec<_>>();
        let cases = cases.iter().collect::<Vec<_>>();
        let allocator = learn(&cases, &[4, 8], 1e-3);
        let fixed = fixed(&cases, &[4, 8]);
        let point = choose(&allocator, 1.0, &cases, &fixed);
        assert!((point.nodes - 5000.0).abs() < 1.0 && (point.nll - 1.5).abs() < 1e-6, "{point:?}");
        assert!((point.mixture - 1.75).abs() < 0.01, "{point:?}");
        assert!((correlation(&allocator, 1, &cases) - 1.0).abs() < 1e-3);
        assert_eq!(choose(&allocator, 1e6, &cases, &fixed).nodes, 0.0);
    }
}
