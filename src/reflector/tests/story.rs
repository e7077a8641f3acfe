//! Whole stories: the scenarios of the specification, and the faults B-09 and B-21.

use super::*;
use crate::source::SourceErrorKind as Kind;

#[test]
fn s1_list_watch_bookmark_and_what_nobody_knows() {
    let script = Script::new().list("10: a@1 b@2").watch("+c@11 ~a@12 -b@13 b@50 -zzz@51 ~c@52 +q@53");
    let mut w = World::start(script);
    assert_eq!(w.asked(), ["0 list any limit 500", "0 watch 10"]);
    let given = ["all@10 a@1 b@2", "+c@11", "~a@12", "-b@13", "b@50", "-zzz@51", "~c@52", "+q@53"];
    assert_eq!(w.given(), given, "in the order of arrival; what to do with an unknown key is the store's business");
    assert_eq!(w.reflector.last_version(), "53");
    assert_eq!(w.stop(), Ok(()));
}
