"""From flags and YAML files to a typed config: names, values and faults. Knows no field of any config."""
