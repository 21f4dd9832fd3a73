set(pilotfish_ops_sources)
