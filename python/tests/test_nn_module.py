"""Modules: what they hold, how they are called, copied and saved."""
import collections
import copy
import dataclasses
import pickle

import pytest

import grapnel as g
from grapnel import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 3)
        self.scale = nn.Parameter(g.ones(3))
        self.register_buffer("count", g.zeros(1))
        self.note = "plain"

    def forward(self, x, factor=1):
        return self.fc(x) * self.scale * factor


# --- members ---


def test_attributes_register_parameters_buffers_and_modules():
    net = Net()
    assert [name for name, _ in net.named_parameters()] == ["scale", "fc.weight", "fc.bias"]
    assert [name for name, _ in net.named_buffers()] == ["count"]
    assert [name for name, _ in net.named_modules()] == ["", "fc"]
    assert net.note == "plain" and "note" in net.__dict__ and "scale" not in net.__dict__


def test_members_are_the_same_objects_every_time():
    net = Net()
    assert net.scale is net.scale and net.fc is net.fc and net.count is net.count
    assert next(iter(net.parameters())) is net.scale
    assert net.fc.weight is dict(net.named_parameters())["fc.weight"]
    assert isinstance(net.fc.weight, nn.Parameter) and isinstance(net.scale, nn.Parameter)
    assert type(net.count) is g.Tensor


def test_submodules_keep_their_python_side_when_nobody_else_has_them():
    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.kept = object()

        def forward(self, x):
            return x

    net = nn.Module()
    net.block = Block()
    kept = net.block.kept
    assert net.block.kept is kept and type(net.block) is Block


def test_replacing_and_deleting_members():
    net = Net()
    new = nn.Parameter(g.zeros(3))
    net.scale = new
    assert net.scale is new and list(net._parameters) == ["scale"]
    net.scale = None
    assert net.scale is None and [n for n, _ in net.named_parameters()] == ["fc.weight", "fc.bias"]
    net.scale = new
    del net.scale
    with pytest.raises(AttributeError, match="scale"):
        net.scale
    net.fc = nn.Linear(4, 2)
    assert net(g.ones(1, 4)).shape == (1, 2) if hasattr(net, "scale") else True
    net.fc = None
    assert net.fc is None and list(net.children()) == []


def test_a_member_takes_only_what_it_is():
    net = Net()
    with pytest.raises(TypeError, match="cannot assign 'Tensor' as parameter 'scale'|as parameter 'scale'"):
        net.scale = g.ones(3)
    with pytest.raises(TypeError, match="as child module 'fc'"):
        net.fc = 3
    with pytest.raises(TypeError, match="as buffer 'count'"):
        net.count = 3
    net.count = g.ones(1)
    assert net.count.item() == 1 and "count" in net.state_dict()


def test_parameters_before_init_are_refused():
    class Early(nn.Module):
        def __init__(self):
            self.w = nn.Parameter(g.ones(1))

    with pytest.raises(AttributeError, match=r"cannot assign parameters before Module.__init__\(\) call"):
        Early()


def test_a_plain_attribute_gives_way_to_a_member():
    net = nn.Module()
    net.w = 3
    net.w = nn.Parameter(g.ones(1))
    assert isinstance(net.w, nn.Parameter) and "w" not in net.__dict__


@pytest.mark.parametrize("name, error", [("", KeyError), ("a.b", KeyError), (3, TypeError), ("note", KeyError)])
def test_bad_names_are_refused(name, error):
    with pytest.raises(error):
        Net().register_parameter(name, nn.Parameter(g.ones(1)))


def test_buffers_that_are_not_saved():
    net = nn.Module()
    net.register_buffer("a", g.ones(1), persistent=False)
    net.b = nn.Buffer(g.ones(2))
    net.c = nn.Buffer(g.ones(2), persistent=False)
    assert list(net.state_dict()) == ["b"] and len(list(net.buffers())) == 3


def test_tied_weights_are_one_parameter():
    net = nn.Module()
    net.a, net.b = nn.Linear(3, 3), nn.Linear(3, 3)
    net.b.weight = net.a.weight
    assert net.b.weight is net.a.weight
    assert [n for n, _ in net.named_parameters()] == ["a.weight", "a.bias", "b.bias"]
    assert len(list(net.named_parameters(remove_duplicate=False))) == 4
    with g.no_grad():
        net.a.weight.fill_(2)
        net.b.bias.zero_()
    assert net.b(g.ones(1, 3)).tolist() == [[6, 6, 6]]  # C++'s own handle is that one, too


def test_get_by_path():
    net = nn.Sequential(collections.OrderedDict(body=Net()))
    assert net.get_submodule("body.fc") is net.body.fc and net.get_submodule("") is net
    assert net.get_parameter("body.fc.weight") is net.body.fc.weight
    assert net.get_buffer("body.count") is net.body.count
    with pytest.raises(AttributeError):
        net.get_submodule("body.nothing")


# --- calls ---


def test_calls_run_forward():
    net = Net()
    x = g.randn(2, 4)
    assert g.equal(net(x, factor=2), (net.fc(x) * net.scale * 2))
    with pytest.raises(NotImplementedError):
        nn.Module()(x)


def test_a_subclass_of_a_layer_may_have_its_own_forward():
    class Doubled(nn.Linear):
        def forward(self, x):
            return super().forward(x) * 2

    layer = Doubled(4, 3)
    x = g.randn(2, 4)
    assert g.equal(layer(x), g.linear(x, layer.weight, layer.bias) * 2)
    plain = nn.Linear(4, 3)
    plain.forward = lambda x: x + 1
    assert g.equal(plain(x), x + 1)


def test_arguments_by_name_find_their_places_in_layers():
    loss = nn.MSELoss()
    assert loss(target=g.zeros(2), input=g.ones(2)).item() == 1
    attention = nn.MultiheadAttention(4, 2, batch_first=True)
    x = g.randn(2, 3, 4)
    out, weights = attention(x, x, x, need_weights=False)
    assert out.shape == (2, 3, 4) and weights is None
    assert attention(query=x, key=x, value=x)[1].shape == (2, 3, 3)


def test_exceptions_of_forward_come_through_as_they_are():
    class Bad(nn.Module):
        def forward(self, x):
            raise KeyError("mine")

    for hooks in (False, True):
        net = Bad()
        if hooks:
            net.register_forward_hook(lambda *a: None)
        with pytest.raises(KeyError, match="mine"):
            net(g.ones(1))


def test_any_object_may_be_argument_and_result():
    marker, values = object(), [1, {"a": g.ones(1)}]

    class Pass(nn.Module):
        def forward(self, *args, **kwargs):
            return args, kwargs

    net = Pass()
    for hooks in (False, True):
        if hooks:
            net.register_forward_hook(lambda *a: None)
        (a, b, c, d), kwargs = net(marker, values, "text", 2**70, key=values)
        assert a is marker and b is values and c == "text" and d == 2**70 and kwargs["key"] is values


# --- modes, types ---


def test_train_and_eval_reach_all_modules():
    net = nn.Sequential(nn.Dropout(0.5), Net())
    assert net.training and net[1].fc.training
    net.eval()
    assert not net.training and not net[1].fc.training and not net[0].training
    assert g.equal(net[0](g.ones(4)), g.ones(4))
    net.train()
    assert net[0].training
    net.training = False
    assert net[0].training


def test_conversion_keeps_identity():
    net = Net()
    weight = net.fc.weight
    assert net.double() is net
    assert net.fc.weight is weight and weight.dtype is g.float64 and net.count.dtype is g.float64
    assert net.to("cpu", g.float32).fc.weight.dtype is g.float32
    with pytest.raises(TypeError):
        net.to(g.int64)


def test_zero_grad_and_apply():
    net = Net()
    net(g.ones(1, 4)).sum().backward()
    assert net.scale.grad is not None
    net.zero_grad()
    assert net.scale.grad is None
    seen = []
    net.apply(lambda m: seen.append(type(m).__name__))
    assert seen == ["Linear", "Net"]
    net.requires_grad_(False)
    assert not any(p.requires_grad for p in net.parameters())


# --- text ---


def test_repr_is_pytorchs():
    net = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Linear(8, 2, bias=False))
    assert repr(net) == """Sequential(
  (0): Conv2d(3, 8, kernel_size=(3, 3), stride=(1, 1), padding=(1, 1))
  (1): BatchNorm2d(8, eps=1e-05, momentum=0.1, affine=True, track_running_stats=True)
  (2): ReLU()
  (3): Flatten(start_dim=1, end_dim=-1)
  (4): Linear(in_features=8, out_features=2, bias=False)
)"""
    assert repr(nn.Module()) == "Module()" and repr(nn.Dropout(0.1)) == "Dropout(p=0.1, inplace=False)"
    assert repr(nn.Parameter(g.ones(2))) == "Parameter containing:\ntensor([1., 1.], requires_grad=True)"


# --- copies ---


def check_copy(new, net):
    assert type(new) is type(net) and new is not net
    assert new.scale is not net.scale and g.equal(new.scale, net.scale)
    assert new.fc.weight is not net.fc.weight and g.equal(new.fc.weight, net.fc.weight)
    assert isinstance(new.fc.weight, nn.Parameter) and new.note == "plain"
    x = g.randn(2, 4)
    assert g.equal(new(x), net(x))
    with g.no_grad():
        new.fc.weight.zero_()
    assert not g.equal(new.fc.weight, net.fc.weight)


def test_deepcopy_and_pickle():
    net = Net()
    net.eval()
    check_copy(copy.deepcopy(net), net)
    again = pickle.loads(pickle.dumps(net))
    check_copy(again, net)
    assert not again.training and list(again.state_dict()) == list(net.state_dict())


def test_deepcopy_keeps_ties_and_hooks():
    net = nn.Module()
    net.a, net.b = nn.Linear(2, 2), nn.Linear(2, 2)
    net.b.weight = net.a.weight
    calls = []
    net.a.register_forward_hook(lambda m, a, out: calls.append(m))
    new = copy.deepcopy(net)
    assert new.a.weight is new.b.weight and new.a.weight is not net.a.weight
    new.a(g.ones(1, 2))
    assert calls == [new.a]


@pytest.mark.parametrize("make", [
    lambda: nn.Linear(3, 3), lambda: nn.MultiheadAttention(4, 2), lambda: nn.TransformerEncoderLayer(4, 2, 8), lambda: nn.LSTM(3, 4, 2),
    lambda: nn.BatchNorm1d(3), lambda: nn.CrossEntropyLoss(weight=g.ones(3)), lambda: nn.PReLU(),
    lambda: nn.ModuleList([nn.Linear(2, 2)]), lambda: nn.ModuleDict({"a": nn.ReLU()}), lambda: nn.ParameterList([g.ones(2)])])
@pytest.mark.parametrize("how", [copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m))], ids=["deepcopy", "pickle"])
def test_layers_are_copied(make, how):
    layer = make()
    new = how(layer)
    assert type(new) is type(layer) and repr(new) == repr(layer)
    old_state, new_state = layer.state_dict(), new.state_dict()
    assert list(old_state) == list(new_state)
    for name in old_state:
        assert g.equal(old_state[name], new_state[name]) and old_state[name].data_ptr() != new_state[name].data_ptr()


# --- state ---


def test_state_dict_and_back():
    net, other = Net(), Net()
    state = net.state_dict()
    assert isinstance(state, collections.OrderedDict) and list(state) == ["scale", "count", "fc.weight", "fc.bias"]
    assert not state["scale"].requires_grad and net.state_dict(keep_vars=True)["scale"] is net.scale
    keys = other.load_state_dict(state)
    assert repr(keys) == "<All keys matched successfully>"
    assert g.equal(other.fc.weight, net.fc.weight)
    assert list(net.state_dict(prefix="a."))[0] == "a.scale"
    assert state._metadata["fc"] == {"version": 1}


def test_what_does_not_fit_changes_nothing():
    net = Net()
    before = net.scale.tolist()
    with pytest.raises(g.Error, match="fc.weight"):
        net.load_state_dict({"scale": g.zeros(3), "fc.weight": g.zeros(1)})
    assert net.scale.tolist() == before
    keys = net.load_state_dict({"scale": g.zeros(3), "more": g.zeros(1)}, strict=False)
    assert keys.missing_keys == ["count", "fc.weight", "fc.bias"] and keys.unexpected_keys == ["more"]
    assert net.scale.tolist() == [0, 0, 0]
    with pytest.raises(TypeError):
        net.load_state_dict({"scale": 3})


def test_assign_takes_the_tensors_themselves():
    net = Net()
    state = {name: g.ones_like(t) for name, t in net.state_dict().items()}
    net.load_state_dict(state, assign=True)
    assert net.scale.data_ptr() == state["scale"].data_ptr() and isinstance(net.scale, nn.Parameter)
    assert net.fc(g.ones(1, 4)).tolist() == [[5, 5, 5]]


def test_extra_state():
    class More(nn.Module):
        extra = 1

        def get_extra_state(self):
            return {"extra": self.extra}

        def set_extra_state(self, state):
            self.extra = state["extra"]

    net = nn.Sequential(More())
    net[0].extra = 7
    state = net.state_dict()
    assert state == {"0._extra_state": {"extra": 7}}
    other = nn.Sequential(More())
    other.load_state_dict(state)
    assert other[0].extra == 7
    with pytest.raises(g.Error, match="_extra_state"):
        other.load_state_dict({})


# --- containers ---


def test_sequential():
    net = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 2))
    assert len(net) == 3 and net[-1].out_features == 2 and isinstance(net[:2], nn.Sequential) and net[:2][0] is net[0]
    x = g.randn(3, 4)
    assert g.equal(net(x), net[2](net[0](x).relu()))
    net.append(nn.Tanh())
    assert [n for n, _ in net.named_children()] == ["0", "1", "2", "3"]
    del net[1]
    assert [type(m).__name__ for m in net] == ["Linear", "Linear", "Tanh"]
    named = nn.Sequential(collections.OrderedDict([("a", nn.ReLU()), ("b", nn.Tanh())]))
    assert named.a is named[0]


def test_module_list_and_dict():
    layers = nn.ModuleList([nn.Linear(2, 2) for _ in range(3)])
    layers.insert(1, nn.ReLU())
    assert len(layers) == 4 and isinstance(layers[1], nn.ReLU) and len(list(layers.parameters())) == 6
    layers += [nn.Tanh()]
    assert isinstance(layers.pop(), nn.Tanh) and len(layers) == 4
    with pytest.raises(IndexError):
        layers[9]
    table = nn.ModuleDict({"a": nn.ReLU(), "b": nn.Linear(1, 1)})
    assert list(table) == ["a", "b"] and "a" in table and table["b"].in_features == 1
    table["a"] = nn.Tanh()
    assert list(table) == ["a", "b"] and isinstance(table.pop("a"), nn.Tanh) and len(table) == 1


def test_parameter_lists():
    net = nn.Module()
    net.weights = nn.ParameterList([g.ones(2), nn.Parameter(g.zeros(3))])
    net.named = nn.ParameterDict({"a": g.ones(1)})
    assert [n for n, _ in net.named_parameters()] == ["weights.0", "weights.1", "named.a"]
    assert all(isinstance(p, nn.Parameter) for p in net.weights) and net.named["a"].requires_grad


# --- containers of tensors as arguments ---


@dataclasses.dataclass
class Batch:
    x: g.Tensor
    names: list


Pair = collections.namedtuple("Pair", ["x", "y"])


@pytest.mark.parametrize("wrapped, unwrap", [
    (lambda x: (x, 1), lambda v: v[0]), (lambda x: [x], lambda v: v[0]), (lambda x: {"x": x}, lambda v: v["x"]),
    (lambda x: Batch(x, []), lambda v: v.x), (lambda x: Pair(x, None), lambda v: v.x), (lambda x: {"a": [(x,)]}, lambda v: v["a"][0][0])],
    ids=["tuple", "list", "dict", "dataclass", "namedtuple", "nested"])
def test_backward_hooks_find_tensors_in_containers(wrapped, unwrap):
    class Open(nn.Module):
        def forward(self, value):
            return wrapped(unwrap(value) * 2)

    net, seen = Open(), []
    net.register_full_backward_hook(lambda m, gin, gout: seen.append((gin, gout)))
    x = g.ones(2, requires_grad=True)
    out = net(wrapped(x))
    assert type(out) is type(wrapped(x))
    unwrap(out).sum().backward()
    assert x.grad.tolist() == [2, 2] and len(seen) == 1
    assert any(t is not None and t.tolist() == [2, 2] for t in seen[0][0])
    assert any(t is not None and t.tolist() == [1, 1] for t in seen[0][1])
