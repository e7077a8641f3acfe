//! The planted fault of the ThreadSanitizer stage: a number is written plainly and announced by a relaxed flag, so
//! nothing orders the write before the read.
use std::{
    cell::UnsafeCell,
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    thread,
};

struct Announced {
    number: UnsafeCell<u64>,
    ready: AtomicBool,
}

// SAFETY: none; sharing it is the fault.
unsafe impl Sync for Announced {}

static SHARED: Announced = Announced { number: UnsafeCell::new(0), ready: AtomicBool::new(false) };

fn main() {
    let writer = thread::spawn(|| {
        // SAFETY: none, see above.
        unsafe { *SHARED.number.get() = 42 };
        SHARED.ready.store(true, Relaxed);
    });
    while !SHARED.ready.load(Relaxed) {
        thread::yield_now();
    }
    // SAFETY: none, see above.
    let number = unsafe { *SHARED.number.get() };
    writer.join().unwrap();
    println!("read {number}");
}
