"""Reports: measured numbers as documented JSON, as pages with charts, and compared with each other."""
