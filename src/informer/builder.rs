//! [`InformerBuilder`]: every choice, with its default.

use super::{
    InformerEvent, SharedInformer,
    engine::{Hook, Observer, StoreEngine},
    shared::{Engine, InformerState, Inner},
};
use crate::{
    flow::DeltaSink,
    processor::Processor,
    queue::RealFifo,
    reflector::{self, Backoff, InitialState, OnUndecodable, RawSource, Reflector},
    source::{ListerWatcher, Scope},
    store::{Compare, IndexError, IndexSpec, Labels, LabelsOf, Waits, Writer},
    sync::{
        Arc, Clock, Monitor, Stop,
        call_out::{self, Foreign, Site},
    },
};
use std::{
    any::{Any, TypeId},
    fmt,
    hash::Hash,
    ops::RangeInclusive,
    time::Duration,
};

/// Why an informer could not be built.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BuildError {
    /// Two indices have the same name, or a name is not fit.
    #[error(transparent)]
    Index(#[from] IndexError),
    /// A label is to be indexed, but the transform makes objects of another type than the source's.
    #[error(
        "label {label:?} cannot be indexed: the labels of these objects are not known; say how to read them with `.labels(..)`"
    )]
    NoLabels {
        /// The label.
        label: String,
    },
}

/// Builds a [`SharedInformer`]; see [`SharedInformer::builder`].
#[must_use = "a builder does nothing until `build`"]
pub struct InformerBuilder<T> {
    source: Arc<dyn RawSource>,
    compare: Compare,
    options: reflector::Options,
    indices: Vec<IndexSpec>,
    labels: Option<LabelsOf<T>>,
    indexed_labels: Vec<String>,
    wiring: Engine,
    hook: Option<Hook>,
}

impl<T: Send + Sync + 'static> InformerBuilder<T> {
    pub(super) fn new<L, E, F>(source: L, transform: F) -> Self
    where
        L: ListerWatcher,
        E: fmt::Display + 'static,
        F: Fn(L::Object) -> Result<T, E> + Send + Sync + 'static,
    {
        let source = Arc::new(source);
        Self {
            compare: compare_by(&source),
            labels: labels_by(&source),
            source: reflector::ingest(source, transform),
            options: reflector::Options { name: "informer".into(), ..reflector::Options::default() },
            indices: Vec::new(),
            indexed_labels: Vec::new(),
            wiring: Engine::default(),
            hook: None,
        }
    }

    /// Names it in reports and waits. Default: "informer".
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.options.name = name.into();
        self
    }

    /// Which objects. Default: all.
    pub fn scope(mut self, scope: Scope) -> Self {
        self.options.scope = scope;
        self
    }

    /// How the first state is asked for. Default: [`InitialState::Any`].
    pub fn initial(mut self, initial: InitialState) -> Self {
        self.options.initial = initial;
        self
    }

    /// Items per page of a list. Default: as client-go chooses it.
    pub fn page_size(mut self, items: u32) -> Self {
        self.options.page_size = items;
        self
    }

    /// How failures are paced. Default: 0.8 s, doubled up to 30 s, with jitter.
    pub fn backoff(mut self, backoff: Backoff) -> Self {
        self.options.backoff = backoff;
        self
    }

    /// The most by which a list that follows an expired watch is put off, at random. Default: 1 s.
    pub fn relist_spread(mut self, spread: Duration) -> Self {
        self.options.relist_spread = spread;
        self
    }

    /// Between which times a watch asks to be ended. Default: 5 to 10 minutes.
    pub fn watch_timeout(mut self, range: RangeInclusive<Duration>) -> Self {
        self.options.watch_timeout = range.into_inner();
        self
    }

    /// After how much silence a watch is checked. Default: 150 s; [`Duration::MAX`] for never. See
    /// [`crate::reflector`].
    pub fn silence(mut self, silence: Duration) -> Self {
        self.options.silence = silence;
        self
    }

    /// What an object that the source could not decode does. Default: [`OnUndecodable::Skip`].
    pub fn on_undecodable(mut self, what: OnUndecodable) -> Self {
        self.options.on_undecodable = what;
        self
    }

    /// Makes all jitter repeat. Default: drawn at random.
    pub fn seed(mut self, seed: u64) -> Self {
        self.options.seed = Some(seed);
        self
    }

    /// An index: `f` emits the values under which an object is to be found, any number of them. With the type of the
    /// values in the call, the closure needs no types: `.index::<String>("node", |pod, emit| emit(pod.node.clone()))`.
    /// See [`crate::store::StoreReader::by_index`].
    /// A panic in `f` refuses that update of the object: its old state stays everywhere, and it is reported.
    pub fn index<V>(mut self, name: &str, f: impl Fn(&T, &mut dyn FnMut(V)) + Send + Sync + 'static) -> Self
    where
        V: Hash + Ord + Clone + Send + Sync + 'static,
    {
        self.indices.push(IndexSpec::new(name, f));
        self
    }

    /// How to read the labels of an object, for listers. Default: as the source does ([`ListerWatcher::labels`]), as long
    /// as the transform leaves its type.
    pub fn labels(mut self, f: impl Fn(&T, &mut dyn FnMut(&str, &str)) + Send + Sync + 'static) -> Self {
        let f = Foreign::new(f);
        self.labels = Some(Arc::new(move |value, emit| f(value, emit)));
        self
    }

    /// Indexes the objects by the value of a label: a lister's selector that names values of it reads the index. It is an
    /// index like others, of `String`s, named `label:` and the label.
    pub fn label_index(mut self, label: impl Into<String>) -> Self {
        self.indexed_labels.push(label.into());
        self
    }

    /// On which threads the stages run. Default: [`Engine::Merged`].
    pub fn engine(mut self, engine: Engine) -> Self {
        self.wiring = engine;
        self
    }

    /// The clock of everything in it. Default: the machine's.
    pub fn clock(mut self, clock: &Clock) -> Self {
        self.options.clock = clock.clone();
        self
    }

    /// Is told of everything that happens and fails, on the thread where it does, without a lock held. Must not block;
    /// a panic in it is contained.
    pub fn observe(mut self, hook: impl Fn(&InformerEvent<'_>) + Send + Sync + 'static) -> Self {
        let hook = Foreign::new(hook);
        self.hook = Some(Arc::new(move |e| hook(e)));
        self
    }

    /// The informer, not running yet.
    ///
    /// # Errors
    /// [`BuildError`].
    pub fn build(self) -> Result<SharedInformer<T>, BuildError> {
        let Self { source, compare, mut options, mut indices, labels, indexed_labels, wiring, hook } = self;
        let (name, clock) = (options.name.clone(), options.clock.clone());
        for label in &indexed_labels {
            let of = labels.clone().ok_or_else(|| BuildError::NoLabels { label: label.clone() })?;
            indices.push(Labels::index(label, of));
        }
        let labels = Arc::new(Labels::new(labels, indexed_labels));
        let stop = Stop::with_clock(&clock);
        let writer = Writer::new(indices)?;
        let reader = writer.reader();
        let observer = Arc::new(Observer::new(hook, stop.clone()));
        let processor = Arc::new(Processor::new(&clock, reader.clone(), observer.clone()));
        let engine = Arc::new(StoreEngine::new(writer, processor.clone(), observer.clone(), Waits::new(&name, &clock, compare)));
        let queue = (wiring == Engine::Decoupled).then(|| Arc::new(RealFifo::new(&name, &clock)));
        let sink: Arc<dyn DeltaSink<_>> = match &queue {
            Some(queue) => queue.clone(),
            None => engine.clone(),
        };
        let told = observer.clone();
        options.hook = Some(Arc::new(move |e| told.tell(&InformerEvent::Reflector(e))));
        let reflector = Arc::new(Reflector::erased(source, sink, options));
        let state = Monitor::new(InformerState::New);
        let inner = Inner { name, clock, reflector, engine, queue, processor, reader, observer, stop, state };
        Ok(SharedInformer::from_inner(inner, labels))
    }
}

/// The source's order of versions. It asks for the source only while that is there: a reader of the store needs none
/// when the informer is gone.
fn compare_by<L: ListerWatcher>(source: &Arc<L>) -> Compare {
    let source = Arc::downgrade(source);
    Box::new(move |a, b| {
        let source = Foreign::new(source.upgrade()?);
        call_out::call(Site::Source, || source.compare(a, b)).ok().flatten()
    })
}

/// The labels that the source reads, when the objects stored are of its type.
fn labels_by<L: ListerWatcher, T: 'static>(source: &Arc<L>) -> Option<LabelsOf<T>> {
    if TypeId::of::<T>() != TypeId::of::<L::Object>() {
        return None;
    }
    let source = Foreign::new(source.clone());
    Some(Arc::new(move |value: &T, emit| {
        if let Some(object) = (value as &dyn Any).downcast_ref::<L::Object>() {
            source.labels(object, emit);
        }
    }))
}

impl<T> fmt::Debug for InformerBuilder<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InformerBuilder").field("name", &self.options.name).finish_non_exhaustive()
    }
}
