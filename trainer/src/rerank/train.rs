//! `zeitnot-train train-reranker`: annotated decisions to a re-ranker, while the prior stays as it is.

use std::{
    collections::{BTreeMap, HashMap},
    path::{Path, PathBuf},
    sync::atomic::{AtomicBool, Ordering},
};

use anyhow::{Context, Result, bail};
use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use rand::{Rng, SeedableRng, seq::SliceRandom};
use rand_chacha::ChaCha8Rng;
use serde::{Deserialize, Serialize};
use tch::{Device, Kind, Tensor};
use zeitnot_encoding::{evidence::Score, rerank::STYLE};
use zeitnot_network::{
    RerankerConfig, Weights,
    specs::{Init, Spec},
};

use super::{
    kept::{self, About},
    known::{Known, Prior},
    loss::Rows,
};
use crate::{
    annotate::{
        manifest::Manifest,
        plan::{Plan, Selection},
    },
    train::{
        eager::Parameters,
        optimizer::{Optimizer, OptimizerConfig},
    },
};

/// Name of the table of styles among the tensors.
pub const STYLES: &str = "styles";

/// Options of `train-reranker`.
#[derive(Args, Clone, Debug)]
pub struct Options {
    /// Recipe, a TOML file; without one the paper's sizes
    #[arg(long)]
    pub config: Option<PathBuf>,
    /// Folder of shards of games
    #[arg(long)]
    pub data: PathBuf,
    /// Folders of evidence about them, as `annotate` writes them
    #[arg(long, required = true, num_args = 1..)]
    pub evidence: Vec<PathBuf>,
    /// Decisions of the games without evidence to train on, too: for styles, and for doing without an engine
    #[arg(long, default_value_t = 0)]
    pub unscored: usize,
    /// The prior, an ONNX file: the one that `annotate` had
    #[arg(long)]
    pub model: PathBuf,
    /// Folder for the re-ranker
    #[arg(long)]
    pub out: PathBuf,
    /// Start from a trained re-ranker's folder instead of from the prior
    #[arg(long)]
    pub init: Option<PathBuf>,
    /// Train the search-free model, which does not see the engine
    #[arg(long)]
    pub without_engine: bool,
    /// Depths whose scores are shown, one at random each time, instead of the recipe's
    #[arg(long, value_delimiter = ',')]
    pub depths: Vec<u8>,
    /// Seed of weights, order and dropout, instead of the recipe's
    #[arg(long)]
    pub seed: Option<u64>,
    /// Name of the re-ranker
    #[arg(long, default_value = "zeitnot-reranker")]
    pub name: String,
    /// What the file says it was trained on
    #[arg(long, default_value = "")]
    pub trained_on: String,
    /// Licence of the weights
    #[arg(long, default_value = "")]
    pub license: String,
}

/// The recipe of a re-ranker.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RerankRecipe {
    /// Sizes and switches.
    pub network: RerankerConfig,
    /// How it is trained.
    pub training: Training,
}

/// How a re-ranker is trained.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Training {
    /// Seed of weights, order and dropout.
    pub seed: u64,
    /// Rows of a batch.
    pub batch_size: usize,
    /// Times that every decision is seen.
    pub epochs: u64,
    /// Depths whose scores are shown, one at random each time; empty for the deepest.
    pub depths: Vec<u8>,
    /// Share of the rows whose scores are hidden, so that the re-ranker can do without.
    pub hide_engine: f64,
    /// Decisions from which on a player gets a style; 0 for no styles.
    pub style_from: usize,
    /// Share of the rows of such a player that are trained as the generic player's.
    pub style_dropout: f64,
    /// How weights are changed.
    pub optimizer: OptimizerConfig,
}

impl Default for Training {
    fn default() -> Self {
        Training {
            seed: 1,
            batch_size: 256,
            epochs: 8,
            depths: Vec::new(),
            hide_engine: 0.2,
            style_from: 60,
            style_dropout: 0.1,
            optimizer: OptimizerConfig { weight_decay: 0.05, ..OptimizerConfig::default() },
        }
    }
}

impl RerankRecipe {
    /// Reads and checks a recipe.
    ///
    /// # Errors
    ///
    /// What is wrong, naming file and field.
    pub fn read(path: &Path) -> Result<Self> {
        let shown = || path.display().to_string();
        let recipe: RerankRecipe =
            toml::from_str(&std::fs::read_to_string(path).with_context(shown)?).with_context(shown)?;
        recipe.network.check().map_err(|problem| anyhow::anyhow!(problem)).with_context(shown)?;
        let Training { batch_size, epochs, hide_engine, style_dropout, .. } = &recipe.training;
        let bad = |name: &str| format!("{}: training.{name} is out of range", path.display());
        for (name, fine) in [
            ("batch_size", (1..=65536).contains(batch_size)),
            ("epochs", (1..=10_000).contains(epochs)),
            ("hide_engine", (0.0..=1.0).contains(hide_engine)),
            ("style_dropout", (0.0..=1.0).contains(style_dropout)),
        ] {
            anyhow::ensure!(fine, bad(name));
        }
        Ok(recipe)
    }
}

/// What came of the training.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Trained {
    /// NLL of the prior on the decisions trained on, in nats.
    pub prior_nll: f64,
    /// Mean NLL of the last epoch, with dropout, in nats.
    pub nll: f64,
}

/// Trains and writes a re-ranker.
///
/// # Errors
///
/// When recipe, games, evidence or prior cannot be read or do not belong together, or training was interrupted.
pub fn run(options: &Options, stop: &AtomicBool) -> Result<Trained> {
    let mut recipe = options.config.as_deref().map_or_else(|| Ok(RerankRecipe::default()), RerankRecipe::read)?;
    recipe.network.engine &= !options.without_engine;
    recipe.training.seed = options.seed.unwrap_or(recipe.training.seed);
    if !options.depths.is_empty() {
        recipe.training.depths.clone_from(&options.depths);
    }
    let mut prior = Prior::open(&options.model)?;
    let mut known = prior.join(&options.data, &options.evidence)?;
    if known.is_empty() {
        bail!("the evidence holds no decision");
    }
    known.extend(unscored(&mut prior, options)?);
    let engines =
        options.evidence.iter().map(|folder| Ok(Manifest::read(folder)?.engine)).collect::<Result<Vec<_>>>()?;
    let players = players(&known, recipe.training.style_from);
    let mut specs = recipe.network.specs();
    specs.push(Spec::new(STYLES, &[players.len() as i64 + 1, STYLE as i64], Init::Normal(0.3)));
    specs.sort_by(|a, b| a.name.cmp(&b.name));
    let parameters = start(&recipe, specs, options.init.as_deref())?;
    println!("{} decisions, {} players with a style, {} parameters", known.len(), players.len(), parameters.count());
    let mut run = Run { random: ChaCha8Rng::seed_from_u64(recipe.training.seed), recipe, parameters, players };
    let trained = run.train(&known, stop)?;
    println!("NLL {:.4} with dropout in the last epoch, the prior's is {:.4}", trained.nll, trained.prior_nll);
    let about = About {
        name: options.name.clone(),
        prior: prior.metadata().name.clone(),
        engines,
        decisions: known.len(),
        recipe: run.recipe,
        players: run.players,
        trained_on: options.trained_on.clone(),
        license: options.license.clone(),
    };
    kept::write(&options.out, &about, &run.parameters, &known)?;
    Ok(trained)
}

/// Decisions without evidence, at random; of busy players more than of others, so that their styles can be learnt.
fn unscored(prior: &mut Prior, options: &Options) -> Result<Vec<Known>> {
    if options.unscored == 0 {
        return Ok(Vec::new());
    }
    let selection = Selection { limit: options.unscored, per_game: 20, per_player: 1000, ..Selection::default() };
    let plan = Plan::read(&options.data, &selection)?;
    let decisions = plan.places(0, plan.len()).map(|place| plan.decision(place)).collect::<Result<Vec<_>>>()?;
    prior.without_evidence(decisions)
}

/// New weights, or those of another re-ranker. Its players' styles are not taken over: their numbers differ.
fn start(recipe: &RerankRecipe, specs: Vec<Spec>, init: Option<&Path>) -> Result<Parameters> {
    let fresh = Parameters::new(specs.clone(), Device::Cpu, recipe.training.seed as i64);
    let Some(folder) = init else { return Ok(fresh) };
    let mut weights: Weights = kept::weights(folder)?;
    if let Some(styles) = fresh.tensors().get(STYLES) {
        let values = Vec::<f32>::try_from(styles.detach().reshape([-1]))?;
        weights.insert(STYLES, zeitnot_network::weights::Tensor { shape: styles.size(), values });
    }
    Parameters::with_weights(specs, Device::Cpu, &weights)
}

/// Rows of the table of styles, from 1, for players with enough decisions, in the order of their names.
fn players(known: &[Known], from: usize) -> BTreeMap<String, i64> {
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for known in known {
        *counts.entry(kept::player(&known.player)).or_default() += 1;
    }
    let enough = counts.into_iter().filter(|&(_, count)| from > 0 && count >= from);
    enough.zip(1i64..).map(|((name, _), row)| (name, row)).collect()
}

struct Run {
    random: ChaCha8Rng,
    recipe: RerankRecipe,
    parameters: Parameters,
    players: BTreeMap<String, i64>,
}

impl Run {
    fn train(&mut self, known: &[Known], stop: &AtomicBool) -> Result<Trained> {
        let Training { batch_size, epochs, optimizer: config, seed, .. } = self.recipe.training.clone();
        let steps = known.len().div_ceil(batch_size) as u64 * epochs;
        let bar = ProgressBar::new(steps);
        bar.set_style(ProgressStyle::with_template("{elapsed_precise} {wide_bar} {pos}/{len} steps {msg} left {eta}")?);
        let mut optimizer = Optimizer::new(&self.parameters);
        let rows = known.iter().map(|known| self.players.get(&kept::player(&known.player)).copied().unwrap_or(0));
        let rows = rows.collect::<Vec<_>>();
        let mut order = (0..known.len()).collect::<Vec<_>>();
        let (mut step, mut epoch_nll) = (0u64, 0.0);
        for _ in 0..epochs {
            order.shuffle(&mut self.random);
            let mut sum = 0.0;
            for chunk in order.chunks(batch_size) {
                if stop.load(Ordering::Relaxed) {
                    bail!("interrupted at step {step} of {steps}; nothing is written");
                }
                // Dropout depends on seed and step alone, so that paired runs draw alike.
                tch::manual_seed((seed ^ (step + 1).wrapping_mul(0x9e37_79b9)) as i64);
                let chosen = chunk.iter().filter_map(|&place| known.get(place)).collect::<Vec<_>>();
                let styles = chunk.iter().filter_map(|&place| rows.get(place).copied()).collect::<Vec<_>>();
                let nll = self.nll(&chosen, &styles)?;
                let loss = nll.mean(Kind::Float);
                loss.backward();
                let rate = config.rate(step, steps);
                optimizer.step(&self.parameters, &config, rate, step, 1.0);
                sum += nll.sum(Kind::Float).double_value(&[]);
                step += 1;
                bar.inc(1);
            }
            epoch_nll = sum / known.len() as f64;
            if !epoch_nll.is_finite() {
                bail!("the loss is {epoch_nll}; lower training.optimizer.learning_rate");
            }
            bar.set_message(format!("NLL {epoch_nll:.4}"));
        }
        bar.finish_and_clear();
        let prior = known.iter().map(|known| {
            let played = known.probabilities(&[]).get(known.played).copied().unwrap_or_default();
            -f64::from(played.max(f32::MIN_POSITIVE)).ln()
        });
        Ok(Trained { prior_nll: prior.sum::<f64>() / known.len() as f64, nll: epoch_nll })
    }

    /// NLL of each decision under what this step shows: random depth, hidden engines, dropped styles.
    fn nll(&mut self, chosen: &[&Known], styles: &[i64]) -> Result<Tensor> {
        let Training { depths, hide_engine, style_dropout, .. } = &self.recipe.training;
        let mut shown: Vec<(&Known, &[Option<Score>])> = Vec::with_capacity(chosen.len());
        let mut rows = Vec::with_capacity(chosen.len());
        for (known, &style) in chosen.iter().zip(styles) {
            // Every draw is made whatever comes of it, so that paired runs stay in step.
            let draws: [f64; 3] = [self.random.random(), self.random.random(), self.random.random()];
            let [depth, hide, drop] = draws;
            let depth = depths.get((depth * depths.len() as f64) as usize).copied().unwrap_or(u8::MAX);
            shown.push((known, if hide < *hide_engine { &[] } else { known.scores(depth) }));
            rows.push(if drop < *style_dropout { 0 } else { style });
        }
        let style = self.styles(&rows);
        let rows = Rows::of(&shown);
        let residuals = rows.residuals(&self.recipe.network, &self.parameters, style.as_ref(), true)?;
        Ok(rows.nll(&residuals))
    }

    /// Styles by row of the table, `[B, 32]`; row 0 is the generic player, whose style is zero and is not learnt.
    fn styles(&self, rows: &[i64]) -> Option<Tensor> {
        let table = self.parameters.tensors().get(STYLES)?;
        let known = rows.iter().map(|&row| if row > 0 { 1.0f32 } else { 0.0 }).collect::<Vec<_>>();
        let known = Tensor::from_slice(&known).unsqueeze(1);
        Some(table.index_select(0, &Tensor::from_slice(rows)) * known)
    }
}

/// Styles by player, from a trained table.
pub fn styles_of(parameters: &Parameters, players: &BTreeMap<String, i64>) -> Result<HashMap<String, Vec<f32>>> {
    let table = parameters.tensors().get(STYLES).context("the re-ranker has no table of styles")?;
    let style = |(name, row): (&String, &i64)| Ok((name.clone(), Vec::<f32>::try_from(table.detach().get(*row))?));
    players.iter().map(style).collect()
}
