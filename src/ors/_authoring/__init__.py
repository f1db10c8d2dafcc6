"""Parts of authoring below `Environment`: tools, their outputs, lists of tasks, copies."""
