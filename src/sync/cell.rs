//! [`UnsafeCell`] in the form of loom's: the pointer is lent to a closure and does not outlive it. Making one and asking
//! for the pointer is safe; what is done with the pointer is not.

/// Part of what must be freed; only loom looks whether it was.
#[derive(Default)]
pub(crate) struct Alive(());

/// A cell whose owners agree by other means on who may look inside.
#[derive(Default)]
pub(crate) struct UnsafeCell<T>(std::cell::UnsafeCell<T>);

impl<T> UnsafeCell<T> {
    pub(crate) const fn new(value: T) -> Self {
        Self(std::cell::UnsafeCell::new(value))
    }

    /// Lends a pointer to read through.
    #[inline(always)]
    pub(crate) fn with<R>(&self, f: impl FnOnce(*const T) -> R) -> R {
        f(self.0.get())
    }

    /// Lends a pointer to write through.
    #[inline(always)]
    pub(crate) fn with_mut<R>(&self, f: impl FnOnce(*mut T) -> R) -> R {
        f(self.0.get())
    }
}
