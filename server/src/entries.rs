//! What a name stands for: a model, or several of which the mover's rating chooses.

use std::{collections::BTreeSet, sync::Arc};

use zeitnot_encoding::{Conditions, encodings::Told, mixture};
use zeitnot_inference::{Metadata, ensemble::ChosenBy};

use crate::{cache::Prediction, jobs::Reply, models::Model};

/// A name that is served.
#[derive(Clone, Debug)]
pub enum Entry {
    /// A model.
    Model(Arc<Model>),
    /// Several models by rating.
    Ensemble(Arc<Ensemble>),
}

/// Several models under one name.
#[derive(Debug)]
pub struct Ensemble {
    /// Where it came from.
    pub source: String,
    /// Fingerprint of its file.
    pub sha256: String,
    /// How members are chosen.
    pub rule: zeitnot_inference::Ensemble,
    /// The members, by rating, lowest first.
    pub members: Vec<Arc<Model>>,
}

/// Who answers a request.
#[derive(Clone, Debug)]
pub struct Chosen {
    /// What was asked for.
    pub entry: Entry,
    /// The model that answers, or that answers most.
    pub lead: Arc<Model>,
    /// Weight of its answer.
    pub weight: f32,
    /// Who answers beside it.
    pub other: Option<(Arc<Model>, f32)>,
    /// What an ensemble chose by.
    pub by: Option<ChosenBy>,
}

impl Entry {
    /// The name.
    pub fn name(&self) -> &str {
        match self {
            Entry::Model(model) => &model.metadata.name,
            Entry::Ensemble(ensemble) => &ensemble.rule.name,
        }
    }

    /// Where it came from.
    pub fn source(&self) -> &str {
        match self {
            Entry::Model(model) => &model.source,
            Entry::Ensemble(ensemble) => &ensemble.source,
        }
    }

    /// Who answers under these conditions; nobody when an ensemble has no members.
    pub fn choose(&self, conditions: &Conditions) -> Option<Chosen> {
        let entry = self.clone();
        match self {
            Entry::Model(model) => Some(Chosen { entry, lead: Arc::clone(model), weight: 1.0, other: None, by: None }),
            Entry::Ensemble(ensemble) => {
                let by = ChosenBy::of(conditions);
                let shares = ensemble.rule.choose(by.rating).into_iter();
                let mut parts =
                    shares.filter_map(|share| Some((Arc::clone(ensemble.members.get(share.member)?), share.weight)));
                let (lead, weight) = parts.next()?;
                Some(Chosen { entry, lead, weight, other: parts.next(), by: Some(by) })
            }
        }
    }

    /// Whether it is the same loading of the same thing.
    pub fn is_same(&self, other: &Entry) -> bool {
        match (self, other) {
            (Entry::Model(own), Entry::Model(other)) => own.id == other.id,
            (Entry::Ensemble(own), Entry::Ensemble(other)) => {
                let ids = |ensemble: &Ensemble| ensemble.members.iter().map(|model| model.id).collect::<Vec<_>>();
                own.sha256 == other.sha256 && own.source == other.source && ids(own) == ids(other)
            }
            _ => false,
        }
    }
}

impl Ensemble {
    /// What its members say of themselves, as one.
    pub fn metadata(&self) -> Metadata {
        let join = |part: fn(&Metadata) -> &String| {
            let parts = self.members.iter().map(|model| part(&model.metadata)).filter(|text| !text.is_empty());
            parts.map(String::as_str).collect::<BTreeSet<_>>().into_iter().collect::<Vec<_>>().join(", ")
        };
        Metadata {
            encoding: join(|metadata| &metadata.encoding),
            vocabulary: join(|metadata| &metadata.vocabulary),
            name: self.rule.name.clone(),
            version: self.rule.version.clone(),
            trained_on: join(|metadata| &metadata.trained_on),
            license: join(|metadata| &metadata.license),
            ..Metadata::default()
        }
    }
}

/// Corrects what a member was told: the mover's rating chose it.
pub fn tell(by: ChosenBy, given: &Conditions, told: &mut Told) {
    told.conditions.mover_rating = given.mover_rating;
    told.notes.retain(|note| !note.starts_with("mover.rating"));
    if !told.notes.iter().any(|note| note.starts_with("ratings")) {
        told.notes.extend(by.assumed.map(str::to_owned));
    }
}

/// The answer of two models as one, the leading one's first.
pub fn mix(parts: [(&Reply, f32); 2]) -> Reply {
    let predictions = parts.map(|(reply, weight)| (&reply.prediction, weight));
    let logits = mixture::logits(&predictions.map(|(prediction, weight)| (&*prediction.logits, weight)));
    let times = predictions.map(|(prediction, weight)| (prediction.think_time.as_ref(), weight));
    let prediction = Prediction {
        logits: logits.into(),
        outlook: mixture::outlook(&predictions.map(|(prediction, weight)| (prediction.outlook, weight))),
        think_time: mixture::think_time(&times),
        pooled: Box::default(), // There is no hidden state that both would share.
    };
    let [(lead, _), (other, _)] = parts;
    Reply {
        prediction: Arc::new(prediction),
        queue: lead.queue.max(other.queue),
        inference: lead.inference.max(other.inference),
        batch_size: lead.batch_size.max(other.batch_size),
        cached: lead.cached && other.cached,
    }
}
