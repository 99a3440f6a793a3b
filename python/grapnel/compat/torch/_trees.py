"""`torch.utils._pytree`: nested lists, tuples and dicts as a list of leaves and a form."""
import collections

from grapnel.compat._missing import module


class TreeSpec:
    """The form of a nested value: its container, the keys of a dict, and the forms inside; a leaf has none of them."""

    def __init__(self, container=None, keys=None, children=()):
        self.container, self.keys, self.children = container, keys, list(children)
        self.num_leaves = sum(child.num_leaves for child in self.children) if container else 1

    def __eq__(self, other):
        return isinstance(other, TreeSpec) and vars(self) == vars(other)

    def __repr__(self):
        return f"TreeSpec({self.container.__name__}, {self.keys}, {self.children})" if self.container else "*"


def _parts(tree):
    """(keys, what is inside) of a container, or None."""
    if isinstance(tree, (dict, collections.OrderedDict)) and type(tree) in (dict, collections.OrderedDict):
        return list(tree), list(tree.values())
    return (None, list(tree)) if type(tree) in (list, tuple) or isinstance(tree, tuple) and hasattr(tree, "_fields") else None


def tree_flatten(tree, is_leaf=None):
    parts = None if is_leaf and is_leaf(tree) else _parts(tree)
    if parts is None:
        return [tree], TreeSpec()
    flat = [tree_flatten(part, is_leaf) for part in parts[1]]
    return [leaf for leaves, _ in flat for leaf in leaves], TreeSpec(type(tree), parts[0], [spec for _, spec in flat])


def tree_unflatten(leaves, treespec):
    leaves = list(leaves)
    if len(leaves) != treespec.num_leaves:
        raise ValueError(f"tree_unflatten: the form has {treespec.num_leaves} leaves, got {len(leaves)}.")
    return _filled(iter(leaves), treespec)


def _filled(leaves, spec):
    if spec.container is None:
        return next(leaves)
    children = [_filled(leaves, child) for child in spec.children]
    if spec.keys is not None:
        return spec.container(zip(spec.keys, children))
    return spec.container(*children) if hasattr(spec.container, "_fields") else spec.container(children)


def tree_leaves(tree, is_leaf=None):
    return tree_flatten(tree, is_leaf)[0]


def tree_map(func, tree, *rests, is_leaf=None):
    leaves, spec = tree_flatten(tree, is_leaf)
    return tree_unflatten(map(func, leaves, *(tree_leaves(rest, is_leaf) for rest in rests)), spec)


def tree_map_only(wanted, func, tree, is_leaf=None):
    """tree_map of the leaves of a type, or of those that a function picks."""
    pick = wanted if not isinstance(wanted, (type, tuple)) else lambda leaf: isinstance(leaf, wanted)
    return tree_map(lambda leaf: func(leaf) if pick(leaf) else leaf, tree, is_leaf=is_leaf)


module("torch.utils._pytree", TreeSpec=TreeSpec, tree_flatten=tree_flatten, tree_unflatten=tree_unflatten, tree_leaves=tree_leaves, tree_map=tree_map,
       tree_map_only=tree_map_only, tree_is_leaf=lambda tree, is_leaf=None: tree_flatten(tree, is_leaf)[1].container is None)
