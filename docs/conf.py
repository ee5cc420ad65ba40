"""Sphinx configuration. Reference pages are written from the code each time the site is built."""

import sys
from importlib import metadata
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))

from make_reference import write_all  # noqa: E402

project = "creditscope"
author = "The creditscope authors"
release = metadata.version("creditscope")

extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
exclude_patterns = ["_build", "figures"]
myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 3
# The notebooks of examples/ are run when the site is built: their outputs are never stale.
nb_execution_mode = "force"
nb_execution_timeout = 300
nb_execution_raise_on_error = True
html_theme = "furo"
html_title = "creditscope"
html_static_path = ["_static"]
html_css_files = ["wide.css"]
html_show_sphinx = False
html_copy_source = False
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
napoleon_google_docstring = True
napoleon_numpy_docstring = False
# The names of optional or generic types are not documented here.
nitpicky = False

write_all(HERE / "_build" / "reference")
