"""One module for each thing that is measured; importing one enters it in the registry."""
