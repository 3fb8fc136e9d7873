//! The comparison as a picture: accuracy and likelihood by rating, and who chooses alike.

use std::{collections::BTreeMap, path::Path};

use anyhow::Result;

use super::Comparison;
use crate::{
    evaluate::metrics::Figures,
    picture::{self, Lines, Map},
};

/// Fewest decisions of a group whose figures are drawn.
const FEWEST: usize = 100;

impl Comparison {
    /// Draws the panels.
    ///
    /// # Errors
    ///
    /// When the file cannot be written.
    pub fn picture(&self, path: &Path) -> Result<()> {
        let names = self.models.iter().map(|model| model.figures.name.clone()).collect::<Vec<_>>();
        let panels = [
            self.by_rating("top-1 (%) by the mover's rating", |figures| figures.top1),
            self.by_rating("negative log-likelihood (nats) by the mover's rating", |figures| figures.nll),
        ];
        let title = "decisions with the same most probable move (%)".to_owned();
        picture::lines_and_map(path, &names, &panels, &Map { title, values: self.agreement.clone() })
    }

    fn by_rating(&self, title: &str, figure: fn(&Figures) -> f64) -> Lines {
        let ratings = self.models.iter().filter_map(|model| model.figures.groups().into_iter().next());
        let ratings = ratings.collect::<Vec<_>>();
        let enough = |name: &&str| ratings.iter().all(|(_, own)| own.get(*name).is_some_and(|own| own.n >= FEWEST));
        let labels = ratings.first().map(|(names, _)| names.iter().copied().filter(enough).collect::<Vec<_>>());
        let labels = labels.unwrap_or_default();
        let line =
            |own: &BTreeMap<String, Figures>| labels.iter().filter_map(|name| own.get(*name).map(figure)).collect();
        Lines {
            title: title.to_owned(),
            lines: ratings.iter().map(|(_, own)| line(own)).collect(),
            labels: labels.into_iter().map(str::to_owned).collect(),
        }
    }
}
