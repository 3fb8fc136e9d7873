//! Sizes of a `maia3/1` network, told by its tensors' shapes.

use serde::{Deserialize, Serialize};
use zeitnot_encoding::maia3::CHANNELS;

use crate::{Weights, config::positive};

/// A `maia3/1` network.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Maia3Config {
    /// Width of a square's token.
    pub width: i64,
    /// Transformer blocks.
    pub blocks: i64,
    /// Attention heads of a block.
    pub heads: i64,
    /// Hidden width of the feed-forward parts.
    pub feed_forward: i64,
    /// Width of each rating's embedding.
    pub rating: i64,
    /// Width of the projections whose products score the moves.
    pub policy: i64,
    /// How attention's bias is made.
    pub bias: BiasConfig,
    /// Whether the projection of single squares, if there is one, adds a bias.
    #[serde(default)]
    pub per_square_bias: bool,
}

/// How a block makes the bias of its attention.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BiasConfig {
    /// Hidden width.
    pub hidden: i64,
    /// Width of a head's vector, from which 64 x 64 numbers are made.
    pub generated: i64,
    /// Width to which each square is squeezed first; 0: the mean of the squares is taken instead.
    pub per_square: i64,
}

impl Maia3Config {
    /// The published networks' name for a size, if it is one of theirs.
    pub fn published(&self) -> Option<&'static str> {
        match (self.width, self.blocks) {
            (192, _) => Some("maia3-3m"),
            (256, _) => Some("maia3-5m"),
            (512, _) => Some("maia3-23m"),
            (1024, _) => Some("maia3-79m"),
            _ => None,
        }
    }

    /// Width of a token beside both ratings.
    pub fn input(&self) -> i64 {
        CHANNELS as i64 + 2 * self.rating
    }

    /// Sizes of the network that some tensors belong to.
    ///
    /// # Errors
    ///
    /// Names the tensor that is missing or fits no network of the family.
    pub fn of(weights: &Weights) -> Result<Self, String> {
        let shape = |name: &str| match weights.shape(name) {
            Some(&[rows, columns]) => Ok([rows, columns]),
            Some(shape) => Err(format!("tensor {name} has shape {shape:?}, not two axes")),
            None => Err(format!("tensor {name} is missing")),
        };
        let [width, _] = shape("token_projection.weight")?;
        let [_, rating] = shape("elo_embedding_low.weight")?;
        let [policy, _] = shape("proj_sq_from.weight")?;
        let [_, generated] = shape("gab_shared_weight")?;
        let first = "transformer.layers.0";
        let [feed_forward, _] = shape(&format!("{first}.linear1.weight"))?;
        let [hidden, _] = shape(&format!("{first}.self_attn.sm2.weight"))?;
        let [vectors, _] = shape(&format!("{first}.self_attn.sm3.weight"))?;
        let sm1 = format!("{first}.self_attn.sm1");
        let per_square = match weights.shape(&format!("{sm1}.weight")) {
            Some(_) => shape(&format!("{sm1}.weight"))?[0],
            None => 0,
        };
        let there = |layer: &i64| weights.shape(&format!("transformer.layers.{layer}.norm1.weight")).is_some();
        let blocks = (0..=MOST_BLOCKS).take_while(there).count() as i64;
        let heads = match vectors.checked_rem(generated) {
            Some(0) => vectors / generated,
            _ => return Err(format!("{vectors} values of attention's bias are not {generated} for each head")),
        };
        let bias = BiasConfig { hidden, generated, per_square };
        let per_square_bias = weights.shape(&format!("{sm1}.bias")).is_some();
        let config = Maia3Config { width, blocks, heads, feed_forward, rating, policy, bias, per_square_bias };
        config.check().map(|()| config)
    }

    /// What is wrong with the sizes, naming the field.
    ///
    /// # Errors
    ///
    /// A sentence for people.
    pub fn check(&self) -> Result<(), String> {
        let sizes = [
            ("width", self.width),
            ("heads", self.heads),
            ("feed_forward", self.feed_forward),
            ("rating", self.rating),
            ("policy", self.policy),
            ("bias.hidden", self.bias.hidden),
            ("bias.generated", self.bias.generated),
        ];
        sizes.into_iter().try_for_each(|(name, value)| positive(name, value))?;
        if !(0..=1024).contains(&self.bias.per_square) {
            return Err(format!("network.bias.per_square: {} is not between 0 and 1024", self.bias.per_square));
        }
        if !(1..=MOST_BLOCKS).contains(&self.blocks) {
            return Err(format!("network.blocks: {} is not between 1 and {MOST_BLOCKS}", self.blocks));
        }
        if self.width % self.heads != 0 {
            return Err(format!("network.heads: {} does not divide the width {}", self.heads, self.width));
        }
        Ok(())
    }
}

/// Most blocks of a network.
const MOST_BLOCKS: i64 = 64;
