//! The making of versions: one [`Table`] per store, one [`Draft`] per step. Generic over what is stored; knows nothing of
//! deltas, sources or keys.
//!
//! A draft begins as a copy of the current version and shares its nodes. Each change asks the index functions first
//! ([`Draft::put`], [`Draft::remove`]) and changes items and indices afterwards, without user code in between; so a
//! function that panics leaves nothing half done. [`Draft::publish`] puts it in the cell and pays for what it replaced.

use super::{
    IndexError, IndexSpec,
    cell::Held,
    directory::{Bin, Tree},
    index::{Change, Resolved, Unresolved, Values},
    node::{Kept, Kind, keep_no_spares},
    reclaim::{Freed, Gauge, Item, Ledger, Waste, in_order_of_memory},
    version::{Core, Snap, Version},
};
use crate::sync::{Arc, atomic::Ordering, call_out::Panicked, order};

/// Replaced versions that are looked at between steps, when none is known to have been let go of.
const LOOK: usize = if cfg!(test) { 1 } else { 64 };

/// An object is in at least so many values, and nobody counts on.
const MANY: u8 = u8::MAX;

/// A store of `E`, from its writer's side.
pub(super) struct Table<E: Item> {
    core: Arc<Core<E>>,
    current: Held<Version<E>>,
    functions: Vec<Box<dyn Values<E>>>,
    ledger: Ledger<E>,
}

/// An update that an index refused.
pub(super) struct Refused {
    pub(super) index: usize,
    pub(super) why: Panicked,
}

/// Why an index was not added.
pub(super) enum AddIndex<E> {
    Duplicate,
    Failed(E, Panicked),
}

/// What a step has to find out before it changes anything: for each index that is to change, which it is and how.
type Plan = Vec<(usize, Change)>;

impl<E: Item> Table<E> {
    pub(super) fn new(specs: Vec<IndexSpec<E>>) -> Result<Self, IndexError> {
        for (at, spec) in specs.iter().enumerate() {
            if specs[..at].iter().any(|other| other.name() == spec.name()) {
                return Err(IndexError::Duplicate { name: spec.name().to_owned() });
            }
        }
        let (indices, functions) = specs.into_iter().map(IndexSpec::split).unzip();
        let current = Held::new(Version::before_anything(indices));
        let core = Arc::new(Core::new(current.clone()));
        Ok(Self { core, current, functions, ledger: Ledger::default() })
    }

    pub(super) fn core(&self) -> &Arc<Core<E>> {
        &self.core
    }

    pub(super) fn current(&self) -> &Version<E> {
        &self.current
    }

    pub(super) fn snapshot(&self) -> Snap<E> {
        Snap::of(self.current.clone(), &self.core)
    }

    pub(super) fn draft(&mut self) -> Draft<'_, E> {
        let next = self.current.next();
        Draft { waste: self.ledger.waste(next.seq), next, table: self, unsteady: 0 }
    }

    /// Adds an index of what is stored, built aside and published as one version in which nothing else differs. When its
    /// function fails for an object, that object is returned and nothing is changed.
    pub(super) fn add_index(&mut self, spec: IndexSpec<E>, budget: usize) -> Result<Freed<E>, AddIndex<E>> {
        if self.current.indices.iter().any(|index| index.definition.name() == spec.name()) {
            return Err(AddIndex::Duplicate);
        }
        let (index, function) = spec.split();
        let mut draft = self.draft();
        let (mut gather, mut marks) = (function.gather(&index.definition), Vec::new());
        for item in draft.next.items.iter() {
            match gather.add(item, draft.next.id_of(item)) {
                Ok(0) => {}
                Ok(more) => marks.push((item.hash(), item.address(), more)),
                Err(why) => return Err(AddIndex::Failed(item.clone(), why)),
            }
        }
        let values = gather.finish(&mut draft.waste);
        Arc::make_mut(&mut draft.next.indices).push(index.with(values));
        for (hash, address, more) in marks {
            let is = |e: &E| e.address() == address;
            let mark = usize::from(draft.next.items.mark(hash, is).unwrap_or(0)) + more;
            draft.next.items.set_mark(hash, mark.min(usize::from(MANY)) as u8, is, &mut draft.waste);
        }
        draft.table.functions.push(function);
        Ok(draft.publish(budget))
    }

    /// Frees so many of the things that nobody has any more: whether there are more of them.
    pub(super) fn reclaim(&mut self, budget: usize, freed: &mut Freed<E>) -> bool {
        // First, so that whoever lets go of a version after it was looked at finds it.
        self.core.waiting.store(true, Ordering::Relaxed);
        // However many are held, all are looked at only when one was let go of.
        let all = self.core.gone.swap(false, order("store: who looks for the dead asks who has gone", Ordering::AcqRel));
        self.ledger.look(&self.core.cell, if all { usize::MAX } else { LOOK });
        self.ledger.drain(budget, freed);
        let gauge = self.ledger.gauge();
        if gauge.versions == 0 {
            self.core.waiting.store(false, Ordering::Relaxed);
        }
        if gauge.waiting == 0 {
            keep_no_spares();
        }
        gauge.waiting > 0
    }

    pub(super) fn gauge(&self) -> Gauge {
        self.ledger.gauge()
    }

    #[cfg(all(test, not(informer_loom), not(informer_shuttle)))]
    pub(super) fn room(&self) -> usize {
        self.ledger.room()
    }
}

impl<E: Item> Drop for Table<E> {
    fn drop(&mut self) {
        self.core.orphan(std::mem::take(&mut self.ledger));
    }
}

/// What is to be stored and nothing else, each key once: as it came, and in the order of hashes.
pub(super) struct Whole<E> {
    /// `None` where the same key came again later.
    pub(super) items: Vec<Option<E>>,
    /// Hashes and places of all that are there.
    pub(super) order: Vec<(u64, usize)>,
}

impl<E: Item> Whole<E> {
    /// Of several with one key, which `same` tells, the last counts.
    pub(super) fn of(items: Vec<E>, same: impl Fn(&E, &E) -> bool) -> Self {
        let mut order: Vec<_> = items.iter().enumerate().map(|(at, item)| (item.hash(), at)).collect();
        order.sort_unstable();
        let mut whole = Self { items: items.into_iter().map(Some).collect(), order };
        if !whole.has_one_of_each_hash() {
            whole.keep_the_last(same);
        }
        whole
    }

    fn keep_the_last(&mut self, same: impl Fn(&E, &E) -> bool) {
        let mut kept: Vec<(u64, usize)> = Vec::with_capacity(self.order.len());
        for (hash, at) in self.order.drain(..) {
            let like_it = kept.iter().rposition(|(h, _)| *h != hash).map_or(0, |before| before + 1);
            let is = |(_, earlier): &(u64, usize)| {
                let both = self.items[*earlier].as_ref().zip(self.items[at].as_ref());
                both.is_some_and(|(earlier, this)| same(earlier, this))
            };
            match kept[like_it..].iter().position(is) {
                None => kept.push((hash, at)),
                Some(i) => {
                    let earlier = std::mem::replace(&mut kept[like_it + i].1, at);
                    self.items[earlier] = None;
                }
            }
        }
        self.order = kept;
    }

    pub(super) fn has_one_of_each_hash(&self) -> bool {
        self.order.windows(2).all(|two| two[0].0 != two[1].0)
    }

    /// All of them in the order of hashes, with their places.
    pub(super) fn iter(&self) -> impl Iterator<Item = (usize, &E)> {
        self.order.iter().filter_map(|(_, at)| Some((*at, self.items[*at].as_ref()?)))
    }

    /// Those that may have this hash.
    pub(super) fn of_hash(&self, hash: u64) -> impl Iterator<Item = &E> {
        let from = self.order.partition_point(|(h, _)| *h < hash);
        let like_it = self.order[from..].iter().take_while(move |(h, _)| *h == hash);
        like_it.filter_map(|(_, at)| self.items[*at].as_ref())
    }
}

/// A version in the making. Dropped, it is forgotten, and what it made is lost.
pub(super) struct Draft<'t, E: Item> {
    table: &'t mut Table<E>,
    pub(super) next: Version<E>,
    waste: Waste<E>,
    /// How often an index function was found to answer differently for the same object.
    pub(super) unsteady: usize,
}

impl<E: Item> Draft<'_, E> {
    /// Puts `new` in the place of `old`, which is stored, or adds it when there is none.
    pub(super) fn put(&mut self, old: Option<&E>, new: &E) -> Result<(), Refused> {
        new.admit(&self.table.core.one_type);
        let plan = self.plan(old, Some(new))?;
        // From here on no user code runs but `Drop`.
        let is = |old: &E| {
            let address = old.address();
            move |e: &E| e.address() == address
        };
        let id = match old {
            Some(old) => self.next.id_of(old),
            None => self.next.new_id(new),
        };
        let before = match old {
            Some(old) if !plan.is_empty() => self.next.items.mark(old.hash(), is(old)).unwrap_or(0),
            _ => 0,
        };
        let mark = self.change(plan, id, before);
        match old {
            None => self.next.items.insert(Kept::new(new.clone()), mark, &mut self.waste),
            Some(old) => {
                if let Ok(kept) = self.next.items.replace(new.clone(), is(old), &mut self.waste) {
                    self.waste.item(kept);
                }
                if mark != before {
                    self.next.items.set_mark(new.hash(), mark, is(new), &mut self.waste);
                }
                self.next.pass_id(old, Some(new));
            }
        }
        Ok(())
    }

    /// Takes out `old`, which is stored.
    pub(super) fn remove(&mut self, old: &E) {
        // Nothing is refused when nothing is put.
        let plan = self.plan(Some(old), None).unwrap_or_default();
        let (id, address) = (self.next.id_of(old), old.address());
        let is = |e: &E| e.address() == address;
        if !self.next.indices.is_empty() {
            let before = self.next.items.mark(old.hash(), is).unwrap_or(0);
            if self.change(plan, id, before) != 0 {
                self.unsteady += usize::from(before != MANY);
                for index in Arc::make_mut(&mut self.next.indices) {
                    index.purge(id, &[], &mut self.waste);
                }
            }
        }
        self.next.pass_id(old, None);
        if let Some(kept) = self.next.items.remove(old.hash(), is, &mut self.waste) {
            self.waste.item(kept);
        }
    }

    /// Asks the index functions.
    fn plan(&self, old: Option<&E>, new: Option<&E>) -> Result<Plan, Refused> {
        let mut plan = Vec::new();
        for (at, (index, function)) in self.next.indices.iter().zip(&self.table.functions).enumerate() {
            let resolved = match function.resolve(old, new, index) {
                // What is done without the old values needs the new ones all the same.
                Err(Unresolved::Old) => function.resolve(None, new, index).map(|resolved| match resolved {
                    Resolved::Same => Resolved::Change(Change::default()),
                    Resolved::Change(change) => Resolved::Change(Change { sound: false, ..change }),
                }),
                resolved => resolved,
            };
            match resolved {
                Ok(Resolved::Same) => {}
                Ok(Resolved::Change(change)) => plan.push((at, change)),
                Err(Unresolved::New(why)) => return Err(Refused { index: at, why }),
                Err(Unresolved::Old) => unreachable!("no old object was asked for"),
            }
        }
        Ok(plan)
    }

    /// Changes the indices: in how many values the object is then.
    fn change(&mut self, plan: Plan, id: u64, before: u8) -> u8 {
        let mut count = usize::from(before);
        if plan.is_empty() {
            return before;
        }
        let indices = Arc::make_mut(&mut self.next.indices);
        for (at, Change { new, gone, mut sound }) in plan {
            let index = &mut indices[at];
            for (value, _) in new.iter().filter(|(_, had)| !had) {
                let added = index.add(value.clone(), id, &mut self.waste);
                count += usize::from(added);
                sound &= added;
            }
            for value in gone {
                let removed = index.remove(value, id, &mut self.waste);
                count = count.saturating_sub(usize::from(removed));
                sound &= removed;
            }
            if !sound {
                // Somewhere is what nobody remembers.
                self.unsteady += 1;
                count = count.saturating_sub(index.purge(id, &new, &mut self.waste));
                count += new.into_iter().filter(|(value, _)| index.add(value.clone(), id, &mut self.waste)).count();
            }
        }
        if before == MANY { MANY } else { count.min(usize::from(MANY)) as u8 }
    }

    /// Fills an empty store at once with objects of which no two have one hash. Hands those that an index refuses to
    /// `refused`.
    pub(super) fn fill(&mut self, whole: Whole<E>, mut refused: impl FnMut(&E, Refused)) {
        debug_assert_eq!(self.next.items.len(), 0);
        let left_out = |_, item: &E, why: Refused| {
            refused(item, why);
            None
        };
        let done = self.gather(whole, left_out).is_ok();
        debug_assert!(done, "what is refused is left out");
    }

    /// Puts these in the place of everything, at once; no two of them have one hash. For one that an index refuses,
    /// `instead` (which is told its place among them) says which stored one of the same hash stays, if any. The index
    /// functions are not asked for what is replaced.
    ///
    /// Gives all of them back, with nothing changed, when an index function panics for a stored one that would stay.
    pub(super) fn refill(
        &mut self,
        whole: Whole<E>,
        instead: impl FnMut(usize, &E, Refused) -> Option<E>,
    ) -> Result<(), Whole<E>> {
        let (before, indices) = (self.next.items.clone(), self.next.indices.clone());
        self.gather(whole, instead)?;
        self.next.forget_aliases();
        let mut old = Vec::with_capacity(before.len());
        before.nodes(&mut |node| {
            if node.kind() == Kind::Page {
                old.extend((0..node.len()).map(|i| node.entry_again(i)));
            }
            self.waste.discard(node.bare());
        });
        in_order_of_memory(&mut old);
        old.into_iter().for_each(|item| self.waste.item(item));
        indices.iter().for_each(|index| index.discard(&mut self.waste));
        Ok(())
    }

    /// Makes items and indices of these and nothing else. See [`Draft::refill`]. Index functions are asked in the order in
    /// which the objects came, which is how they stand in memory more often than not.
    fn gather(&mut self, mut whole: Whole<E>, mut instead: impl FnMut(usize, &E, Refused) -> Option<E>) -> Result<(), Whole<E>> {
        let Self { table, next, waste, .. } = self;
        let indices = next.indices.iter().zip(&table.functions);
        let mut gathers: Vec<_> = indices.map(|(index, function)| function.gather(&index.definition)).collect();
        // Under how many values it comes, in all indices together; under none, when one refuses it.
        let mut add = |item: &E| {
            item.admit(&table.core.one_type);
            let mut count = 0;
            for at in 0..gathers.len() {
                match gathers[at].add(item, item.hash()) {
                    Ok(more) => count += more,
                    Err(why) => {
                        gathers[..=at].iter_mut().for_each(|gather| gather.undo(item.hash()));
                        return Err(Refused { index: at, why });
                    }
                }
            }
            Ok(count.min(usize::from(MANY)) as u8)
        };
        let (mut marks, mut refused) = (vec![0; whole.items.len()], Vec::new());
        for (at, place) in whole.items.iter_mut().enumerate() {
            let Some(item) = place else { continue };
            match add(item) {
                Ok(mark) => marks[at] = mark,
                Err(why) => {
                    let old = instead(at, item, why);
                    let mark = old.as_ref().map_or(Ok(0), &mut add);
                    refused.push((at, std::mem::replace(place, old)));
                    match mark {
                        Ok(mark) => marks[at] = mark,
                        Err(_on_record) => {
                            refused.into_iter().for_each(|(at, new)| whole.items[at] = new);
                            return Err(whole);
                        }
                    }
                }
            }
        }
        let Whole { mut items, order } = whole;
        let entries = order.into_iter().filter_map(|(_, at)| Some((items[at].take()?, marks[at])));
        next.items = Tree::build(entries.collect(), waste);
        for (index, gather) in Arc::make_mut(&mut next.indices).iter_mut().zip(gathers) {
            *index = index.with(gather.finish(waste));
        }
        Ok(())
    }

    /// In the order of the numbers that refusals name.
    pub(super) fn index_names(&self) -> Vec<String> {
        self.next.indices.iter().map(|index| index.definition.name().to_owned()).collect()
    }

    /// How many things the step has replaced.
    pub(super) fn replaced(&self) -> usize {
        self.waste.len()
    }

    /// Publishes, and frees so many of the things that nobody has any more.
    pub(super) fn publish(self, budget: usize) -> Freed<E> {
        let Self { table, next, waste, .. } = self;
        let seq = next.seq;
        let new = Held::new(next);
        table.current = new.clone();
        let old = table.core.cell.publish(new);
        let mut freed = Freed::default();
        table.ledger.replaced(old, seq, waste, budget, &mut freed);
        if table.ledger.versions() > 0 {
            table.core.waiting.store(true, Ordering::Relaxed);
        }
        freed
    }
}
