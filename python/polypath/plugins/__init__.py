"""Plug-ins for packages that serve models (docs/serving.md). Each module names the versions of the
package's interface that it was written for, and is imported by that package, or by its user."""
