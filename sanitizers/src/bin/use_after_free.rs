//! The planted fault of the AddressSanitizer stage: reads a box that was freed. Its report shows that the stage can see
//! what it looks for.
use std::hint::black_box;

fn main() {
    let freed = Box::into_raw(Box::new(7_u64));
    // SAFETY: none. The second line reads what the first has freed, on purpose.
    let read = unsafe {
        drop(Box::from_raw(black_box(freed)));
        *black_box(freed)
    };
    println!("nobody noticed; the memory says {read}");
}
