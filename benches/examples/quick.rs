fn main() {
    let o = Default::default();
    for r in counterfoil_benches::replay::run(&o).unwrap().iter().take(10) {
        println!("{} {} {:.0} {:.0} {:.2}", r.size, r.log_bytes, r.mb_per_s, r.floor_mb_per_s, r.ratio);
    }
    for r in counterfoil_benches::release::run(&o).unwrap().iter().skip(3) {
        println!("{r:?}");
    }
}
