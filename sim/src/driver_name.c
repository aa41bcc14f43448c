// Nothing: what the program looks for is in libpolypath_sim.so, which this library needs.
typedef int polypath_nothing;
