//! Sizes and switches of the networks.

use serde::{Deserialize, Serialize};
use zeitnot_encoding::{Encoding, Lc0, Maia3, Otter, Zeitnot};

use crate::{Graph, Maia3Config, Outputs, lc0, maia3, otter, zeitnot};

/// A network of some family; a recipe names the family by its encoding.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "encoding")]
pub enum NetworkConfig {
    /// The published architecture and its siblings.
    #[serde(rename = "otter/1")]
    Otter(OtterConfig),
    /// Our own.
    #[serde(rename = "zeitnot/1")]
    Zeitnot(ZeitnotConfig),
    /// Residual networks of Leela Chess Zero, such as Maia-1.
    #[serde(rename = "lc0-112/1")]
    Lc0(Lc0Config),
    /// Maia-3.
    #[serde(rename = "maia3/1")]
    Maia3(Maia3Config),
}

impl NetworkConfig {
    /// How situations are encoded for it.
    pub fn encoding(&self) -> &'static dyn Encoding {
        match self {
            NetworkConfig::Otter(_) => &Otter,
            NetworkConfig::Zeitnot(_) => &Zeitnot,
            NetworkConfig::Lc0(_) => &Lc0,
            NetworkConfig::Maia3(_) => &Maia3,
        }
    }

    /// Runs the network.
    pub fn forward<G: Graph>(&self, g: &mut G) -> Outputs<G::Value> {
        match self {
            NetworkConfig::Otter(config) => otter::forward(g, config),
            NetworkConfig::Zeitnot(config) => zeitnot::forward(g, config),
            NetworkConfig::Lc0(config) => lc0::forward(g, config),
            NetworkConfig::Maia3(config) => maia3::forward(g, config),
        }
    }

    /// What is wrong with the sizes, naming the field.
    ///
    /// # Errors
    ///
    /// A sentence for people.
    pub fn check(&self) -> Result<(), String> {
        match self {
            NetworkConfig::Otter(config) => config.check(),
            NetworkConfig::Zeitnot(config) => config.check(),
            NetworkConfig::Lc0(config) => config.check(),
            NetworkConfig::Maia3(config) => config.check(),
        }
    }

    /// The same without recent moves, if the family can do without.
    pub fn without_history(self) -> Option<Self> {
        Some(match self {
            NetworkConfig::Otter(config) => NetworkConfig::Otter(OtterConfig { history: None, ..config }),
            NetworkConfig::Zeitnot(config) => {
                NetworkConfig::Zeitnot(ZeitnotConfig { move_planes: 0, move_tokens: 0, ..config })
            }
            NetworkConfig::Lc0(_) | NetworkConfig::Maia3(_) => return None,
        })
    }

    /// The same without time control and clocks, if the family can tell them.
    pub fn without_time(self) -> Option<Self> {
        Some(match self {
            NetworkConfig::Otter(config) => NetworkConfig::Otter(OtterConfig { time: false, ..config }),
            NetworkConfig::Zeitnot(config) => NetworkConfig::Zeitnot(ZeitnotConfig { time: false, ..config }),
            NetworkConfig::Lc0(_) | NetworkConfig::Maia3(_) => return None,
        })
    }
}

/// A `zeitnot/1` network: residual blocks of 3x3 convolutions whose gates and biases come from the conditions.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ZeitnotConfig {
    /// Channels of the trunk.
    pub width: i64,
    /// Residual blocks of two 3x3 convolutions.
    pub blocks: i64,
    /// How many of the newest moves enter the stem, each as a plane of its from square and one of its to square.
    pub move_planes: i64,
    /// Width of the move tokens whose mean joins the conditions; 0 for none.
    pub move_tokens: i64,
    /// Whether the network sees time control and clocks.
    pub time: bool,
    /// Width of the condition vector.
    pub condition: i64,
    /// Hidden width between squeeze and excitation.
    pub squeeze: i64,
    /// How moves are scored.
    pub policy: PolicyConfig,
    /// Hidden width of the win/draw/loss, think-time and auxiliary heads.
    pub heads: i64,
}

impl ZeitnotConfig {
    fn check(&self) -> Result<(), String> {
        let sizes = [
            ("width", self.width),
            ("condition", self.condition),
            ("squeeze", self.squeeze),
            ("heads", self.heads),
            match self.policy {
                PolicyConfig::Pooled { hidden } => ("policy.hidden", hidden),
                PolicyConfig::FromTo { width } => ("policy.width", width),
            },
        ];
        sizes.into_iter().try_for_each(|(name, value)| positive(name, value))?;
        let ranges = [
            ("blocks", self.blocks, 64),
            ("move_planes", self.move_planes, zeitnot_encoding::situation::HISTORY as i64),
            ("move_tokens", self.move_tokens, 65536),
        ];
        for (name, value, most) in ranges {
            if !(0..=most).contains(&value) {
                return Err(format!("network.{name}: {value} is not between 0 and {most}"));
            }
        }
        Ok(())
    }
}

/// An `lc0-112/1` network.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Lc0Config {
    /// Channels of the trunk.
    pub width: i64,
    /// Residual blocks of two 3x3 convolutions.
    pub blocks: i64,
    /// Hidden width between squeeze and excitation, if there is any.
    pub squeeze: Option<i64>,
    /// Channels of the fully connected policy of 1,858 moves; none for the policy of 80 planes.
    pub policy_channels: Option<i64>,
    /// Channels of the value head.
    pub value_channels: i64,
    /// Hidden width of the value head.
    pub value_hidden: i64,
    /// Whether the value head tells win, draw and loss apart.
    pub wdl: bool,
}

impl Lc0Config {
    /// What is wrong with the sizes, naming the field.
    ///
    /// # Errors
    ///
    /// A sentence for people.
    pub fn check(&self) -> Result<(), String> {
        positive("width", self.width)?;
        positive("policy_channels", self.policy_channels.unwrap_or(1))?;
        positive("value_channels", self.value_channels)?;
        positive("value_hidden", self.value_hidden)?;
        positive("squeeze", self.squeeze.unwrap_or(1))?;
        match self.blocks {
            0..=64 => Ok(()),
            blocks => Err(format!("network.blocks: {blocks} is not between 0 and 64")),
        }
    }
}

pub(crate) fn positive(name: &str, value: i64) -> Result<(), String> {
    match value {
        1..=65536 => Ok(()),
        _ => Err(format!("network.{name}: {value} is not between 1 and 65536")),
    }
}

/// An `otter/1` network: [`OtterConfig::reference`], its compact sibling, or anything between.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OtterConfig {
    /// Channels after each 3x3 convolution of the stem; the last is the width of the 64 board tokens.
    pub stem: Vec<i64>,
    /// Residual blocks of two 3x3 convolutions.
    pub residual_blocks: i64,
    /// Whether the network sees the recent moves.
    pub history: Option<HistoryConfig>,
    /// Whether the network sees the time control and the clock.
    pub time: bool,
    /// Width of each rating embedding.
    pub rating: i64,
    /// Width of the time-control embedding.
    pub time_control: i64,
    /// Width of the clock's hidden layers.
    pub clock: i64,
    /// Attention heads over the board.
    pub heads: i64,
    /// Hidden width of the cross-attention block's feed-forward part.
    pub cross_feed_forward: i64,
    /// Self-attention blocks.
    pub self_blocks: i64,
    /// Hidden width of their feed-forward parts.
    pub self_feed_forward: i64,
    /// How moves are scored.
    pub policy: PolicyConfig,
    /// Hidden width of the auxiliary head.
    pub auxiliary: i64,
    /// Hidden width of the value head.
    pub value: i64,
    /// Share of values zeroed while training.
    pub dropout: f64,
}

/// The history encoder.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HistoryConfig {
    /// Width of a move's token.
    pub width: i64,
    /// Attention heads.
    pub heads: i64,
    /// Hidden width of the feed-forward parts.
    pub feed_forward: i64,
    /// Transformer layers, post-norm.
    pub layers: i64,
    /// What a move's token is made of.
    pub embedding: HistoryEmbedding,
    /// How many of the newest moves also enter the stem, each as a plane of its from square and one of its to square.
    pub planes: i64,
}

/// What a history move's token is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum HistoryEmbedding {
    /// One vector per move of the vocabulary, in the frame of the player who made it.
    Vocabulary,
    /// The sum of a vector of the from square and one of the to square, both in the mover's frame.
    Squares,
}

/// The policy head.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub enum PolicyConfig {
    /// Two linear layers from the pooled tokens to all 4,208 logits.
    Pooled {
        /// Hidden width.
        hidden: i64,
    },
    /// Query of the from square times key of the to square, plus a promotion term of the to square.
    FromTo {
        /// Width of queries and keys.
        width: i64,
    },
}

impl OtterConfig {
    /// The published network with 15.3 million parameters.
    pub fn reference() -> Self {
        OtterConfig {
            stem: vec![64, 128, 256],
            residual_blocks: 4,
            history: Some(HistoryConfig {
                width: 128,
                heads: 4,
                feed_forward: 256,
                layers: 2,
                embedding: HistoryEmbedding::Vocabulary,
                planes: 0,
            }),
            time: true,
            rating: 128,
            time_control: 64,
            clock: 64,
            heads: 8,
            cross_feed_forward: 512,
            self_blocks: 4,
            self_feed_forward: 1024,
            policy: PolicyConfig::Pooled { hidden: 1024 },
            auxiliary: 512,
            value: 64,
            dropout: 0.1,
        }
    }

    /// Width of a board token.
    pub fn width(&self) -> i64 {
        self.stem.last().copied().unwrap_or_default()
    }

    /// Width of the condition vector.
    pub fn condition(&self) -> i64 {
        let time = if self.time { self.time_control + self.clock } else { 0 };
        let history = if self.history.is_some() { self.width() } else { 0 };
        2 * self.rating + time + history
    }

    /// What is wrong with the sizes, naming the field.
    ///
    /// # Errors
    ///
    /// A sentence for people.
    pub fn check(&self) -> Result<(), String> {
        if self.stem.is_empty() {
            return Err("network.stem: needs at least one convolution".into());
        }
        self.stem.iter().try_for_each(|&channels| positive("stem", channels))?;
        for (name, value) in [
            ("rating", self.rating),
            ("time_control", self.time_control),
            ("clock", self.clock),
            ("heads", self.heads),
            ("cross_feed_forward", self.cross_feed_forward),
            ("self_feed_forward", self.self_feed_forward),
            ("auxiliary", self.auxiliary),
            ("value", self.value),
        ] {
            positive(name, value)?;
        }
        if !(0..=64).contains(&self.residual_blocks) || !(0..=64).contains(&self.self_blocks) {
            return Err("network.residual_blocks and network.self_blocks: between 0 and 64".into());
        }
        if self.width() % self.heads != 0 {
            return Err(format!("network.heads: {} does not divide the width {}", self.heads, self.width()));
        }
        if !(0.0..1.0).contains(&self.dropout) {
            return Err(format!("network.dropout: {} is not a share below 1", self.dropout));
        }
        if let Some(history) = &self.history {
            positive("history.width", history.width)?;
            positive("history.heads", history.heads)?;
            positive("history.feed_forward", history.feed_forward)?;
            if history.width % history.heads != 0 {
                return Err("network.history.heads: does not divide network.history.width".into());
            }
            if !(0..=20).contains(&history.planes) || !(0..=64).contains(&history.layers) {
                return Err("network.history: planes between 0 and 20, layers between 0 and 64".into());
            }
        }
        match self.policy {
            PolicyConfig::Pooled { hidden } => positive("policy.hidden", hidden),
            PolicyConfig::FromTo { width } => positive("policy.width", width),
        }
    }
}
