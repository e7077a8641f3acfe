//! The queue, promise by promise.
