//! `zeitnot-train fit-style`: one player's style from their games, while prior and re-ranker stay as they are.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use clap::Args;
use rand::{SeedableRng, seq::SliceRandom};
use rand_chacha::ChaCha8Rng;
use tch::{Device, Kind, Tensor, no_grad};
use zeitnot_encoding::rerank::STYLE;
use zeitnot_network::specs::{Init, Spec};

use super::{
    kept::{self, StyleFile},
    known::{Known, Prior},
    loss::Rows,
    train::{STYLES, styles_of},
};
use crate::{
    filter::Filter,
    pgn::{self, Games},
    prepare::write_atomically,
    record::GameRecord,
    train::{
        eager::Parameters,
        optimizer::{Optimizer, OptimizerConfig},
    },
};

/// Rows of a batch.
const BATCH: usize = 256;
/// Share of the decisions, the last ones, on which steps are judged.
const HELD: f64 = 0.2;

/// Options of `fit-style`.
#[derive(Args, Clone, Debug)]
pub struct Options {
    /// The re-ranker's folder, as `train-reranker` writes it
    #[arg(long)]
    pub reranker: PathBuf,
    /// The prior, an ONNX file
    #[arg(long)]
    pub model: PathBuf,
    /// The player, as the games name them
    #[arg(long)]
    pub player: String,
    /// Games, .pgn or .pgn.zst; moves of others are not looked at
    #[arg(long, num_args = 1..)]
    pub games: Vec<PathBuf>,
    /// Folders of evidence of the player's decisions, beside or instead of games
    #[arg(long, num_args = 1.., requires = "data")]
    pub evidence: Vec<PathBuf>,
    /// Folder of shards of the evidence's games
    #[arg(long)]
    pub data: Option<PathBuf>,
    /// Start from the trained player whose style fits best, instead of from the generic player
    #[arg(long)]
    pub prototype_start: bool,
    /// Most decisions to learn from; 0 for all
    #[arg(long, default_value_t = 20_000)]
    pub limit: usize,
    /// Times that every decision is seen
    #[arg(long, default_value_t = 30)]
    pub epochs: u64,
    /// Highest learning rate
    #[arg(long, default_value_t = 0.02)]
    pub learning_rate: f64,
    /// Pull towards the generic player, in nats per squared length of the style
    #[arg(long, default_value_t = 0.001)]
    pub pull: f64,
    /// The file to write, NAME.json
    #[arg(long)]
    pub out: PathBuf,
}

/// What came of it, as means over the decisions that were not learnt from.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Fitted {
    /// NLL of the generic player, in nats.
    pub generic: f64,
    /// NLL of the style, in nats.
    pub own: f64,
    /// Decisions learnt from.
    pub decisions: usize,
}

/// Fits and writes a style.
///
/// # Errors
///
/// When games, evidence or re-ranker cannot be read, or hold too few decisions of the player.
pub fn run(options: &Options) -> Result<Fitted> {
    let (about, parameters) = kept::read(&options.reranker)?;
    if about.players.is_empty() {
        bail!("{}: the re-ranker was trained without styles", options.reranker.display());
    }
    let known = decisions(options)?;
    if known.len() < 50 {
        bail!("{} decisions of {} are too few; 50 are needed", known.len(), options.player);
    }
    let held = ((known.len() as f64 * HELD) as usize).max(1);
    let (learnt, judged) = known.split_at(known.len() - held);
    let frozen = Frozen { about: &about, parameters: &parameters };
    let first = if options.prototype_start { frozen.prototype(&options.reranker, learnt)? } else { vec![0.0; STYLE] };
    let style = frozen.fit(options, learnt, &first)?;
    let fitted = Fitted {
        generic: frozen.nll(judged, &[0.0; STYLE])?,
        own: frozen.nll(judged, &style)?,
        decisions: learnt.len(),
    };
    println!(
        "{}: NLL {:.4} as the generic player, {:.4} in the style, on {} decisions that were not learnt from",
        options.player,
        fitted.generic,
        fitted.own,
        judged.len()
    );
    if fitted.own > fitted.generic {
        println!("the style is worse than none on these; more decisions or a larger --pull may help");
    }
    let file = StyleFile {
        reranker: about.name.clone(),
        player: options.player.clone(),
        decisions: learnt.len(),
        values: style,
    };
    write_atomically(&options.out, &serde_json::to_vec_pretty(&file)?)?;
    Ok(fitted)
}

/// The player's decisions, those with evidence first.
fn decisions(options: &Options) -> Result<Vec<Known>> {
    let mut prior = Prior::open(&options.model)?;
    let mut known = Vec::new();
    if let Some(data) = &options.data {
        let all = prior.join(data, &options.evidence)?;
        known.extend(all.into_iter().filter(|known| known.player.1 == options.player));
    }
    let mut games = Vec::new();
    for path in &options.games {
        games.extend(games_of(path, &options.player)?);
    }
    let own = |game: &GameRecord, ply: usize| {
        let side = if ply.is_multiple_of(2) { &game.white } else { &game.black };
        side.name == options.player
    };
    let from_games = games.iter().flat_map(|game| {
        game.decisions().filter(|decision| own(game, decision.ply)).map(move |decision| (game, decision))
    });
    let most = if options.limit == 0 { usize::MAX } else { options.limit };
    known.extend(prior.without_evidence(from_games.take(most.saturating_sub(known.len())))?);
    known.truncate(most);
    Ok(known)
}

fn games_of(path: &Path, player: &str) -> Result<Vec<GameRecord>> {
    let shown = || path.display().to_string();
    let text = pgn::open(path, |_| ()).with_context(shown)?;
    let mut games = Vec::new();
    for outcome in Games::new(text, Filter { min_plies: 1, ..Filter::default() }) {
        if let Ok(game) = outcome.with_context(shown)?
            && (game.white.name == player || game.black.name == player)
        {
            games.push(game);
        }
    }
    Ok(games)
}

/// A re-ranker that does not change.
struct Frozen<'a> {
    about: &'a kept::About,
    parameters: &'a Parameters,
}

impl Frozen<'_> {
    /// Mean NLL in one style, in nats.
    fn nll(&self, known: &[Known], style: &[f32]) -> Result<f64> {
        let mut sum = 0.0;
        for chunk in known.chunks(BATCH) {
            let styles = Tensor::from_slice(style).repeat([chunk.len() as i64, 1]);
            sum += no_grad(|| self.losses(chunk, &styles))?.sum(Kind::Float).double_value(&[]);
        }
        Ok(sum / known.len().max(1) as f64)
    }

    fn losses(&self, known: &[Known], styles: &Tensor) -> Result<Tensor> {
        let shown = known.iter().map(|known| (known, known.scores(u8::MAX))).collect::<Vec<_>>();
        let rows = Rows::of(&shown);
        let residuals = rows.residuals(&self.about.recipe.network, self.parameters, Some(styles), false)?;
        Ok(rows.nll(&residuals))
    }

    /// The style of the trained player that fits these decisions best.
    fn prototype(&self, folder: &Path, known: &[Known]) -> Result<Vec<f32>> {
        let mut specs = self.about.recipe.network.specs();
        let shape = [self.about.players.len() as i64 + 1, STYLE as i64];
        specs.push(Spec::new(STYLES, &shape, Init::Zeros));
        let with_table = Parameters::with_weights(specs, Device::Cpu, &kept::weights(folder)?)?;
        let mut best = (self.nll(known, &[0.0; STYLE])?, vec![0.0; STYLE]);
        for style in styles_of(&with_table, &self.about.players)?.into_values() {
            let nll = self.nll(known, &style)?;
            if nll < best.0 {
                best = (nll, style);
            }
        }
        Ok(best.1)
    }

    fn fit(&self, options: &Options, known: &[Known], first: &[f32]) -> Result<Vec<f32>> {
        let spec = Spec::new("style", &[1, STYLE as i64], Init::Zeros);
        let own = Parameters::new(vec![spec], Device::Cpu, 1);
        let mut style = own.tensors().get("style").context("there is no style")?.shallow_clone();
        no_grad(|| style.copy_(&Tensor::from_slice(first).view([1, STYLE as i64])));
        let config =
            OptimizerConfig { learning_rate: options.learning_rate, weight_decay: 0.0, ..OptimizerConfig::default() };
        let mut optimizer = Optimizer::new(&own);
        let steps = options.epochs * known.len().div_ceil(BATCH) as u64;
        let mut order = (0..known.len()).collect::<Vec<_>>();
        let mut random = ChaCha8Rng::seed_from_u64(1);
        let mut step = 0;
        for _ in 0..options.epochs {
            order.shuffle(&mut random);
            for chunk in order.chunks(BATCH) {
                let chosen = chunk.iter().filter_map(|&place| known.get(place).cloned()).collect::<Vec<_>>();
                let styles = style.repeat([chosen.len() as i64, 1]);
                let loss =
                    self.losses(&chosen, &styles)?.mean(Kind::Float) + style.square().sum(Kind::Float) * options.pull;
                loss.backward();
                optimizer.step(&own, &config, config.rate(step, steps), step, 1.0);
                step += 1;
            }
        }
        Ok(Vec::<f32>::try_from(style.detach().reshape([-1]))?)
    }
}
