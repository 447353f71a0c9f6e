"""What pages say of results: a module for each kind; its `BLOCKS` names the functions that write blocks."""
