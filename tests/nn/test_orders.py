"""Paths through a grid, and layers that walk them."""

import pytest
import torch

import lion
from lion.nn.decay import PerOrder
from lion.nn.orders import ORDERS, grid_orders


def test_the_paths():
    grid = {name: path(2, 3).tolist() for name, path in ORDERS.items()}
    assert grid == {
        "rows": [0, 1, 2, 3, 4, 5],
        "columns": [0, 3, 1, 4, 2, 5],
        "snake": [0, 1, 2, 5, 4, 3],
        "transposed_snake": [0, 3, 4, 1, 2, 5],
    }


@pytest.mark.parametrize("name", ["snake", "transposed_snake"])
def test_a_snake_never_jumps(name):
    path = ORDERS[name](5, 4)
    rows, columns = path // 4, path % 4
    assert (rows.diff().abs() + columns.diff().abs() == 1).all()
    assert sorted(path.tolist()) == list(range(20))


def test_tokens_beside_the_grid_come_first():
    assert grid_orders(["rows", "columns"], 2, 2, prefix=1).tolist() == [[0, 1, 2, 3, 4], [0, 1, 3, 2, 4]]


@pytest.mark.parametrize("variant", ["lion_s", "lion_d_diag", "rwkv6", "xlstm", "deltanet", "mamba"])
def test_a_layer_sums_over_its_orders(variant):
    layer = lion.LionAttention(16, 2, variant, orders=["snake", "transposed_snake"]).double()
    x = torch.randn(2, 13, 16).double()  # a class token and 3 x 4
    out = layer(x, grid=(3, 4))
    given = lion.LionAttention(16, 2, variant, orders=grid_orders(["snake", "transposed_snake"], 3, 4, prefix=1))
    given.double().load_state_dict(layer.state_dict())
    torch.testing.assert_close(given(x), out)
    torch.testing.assert_close(layer.set_form("rnn")(x, grid=(3, 4)), out, rtol=1e-10, atol=1e-10)
    if isinstance(layer.decay, PerOrder) and layer.decay.columns:
        return  # each path reads its decays from the input in its own way
    # Transposing the grid exchanges the two paths.
    transposed = x[:, torch.cat([torch.tensor([0]), torch.arange(12).view(3, 4).T.flatten() + 1])]
    back = torch.cat([torch.tensor([0]), torch.arange(12).view(4, 3).T.flatten() + 1])
    torch.testing.assert_close(layer(transposed, grid=(4, 3))[:, back], out, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize(("variant", "own"), [("lion_s", True), ("lion_d", True), ("rwkv6", True), ("xlstm", False)])
def test_every_order_has_decays_of_its_own(variant, own):
    """Unless the variant's gates on the input belong to the token, not to the path."""
    layer = lion.LionAttention(16, 2, variant, orders=["snake", "transposed_snake"])
    assert isinstance(layer.decay, PerOrder) == own
    x = torch.randn(2, 9, 16)
    before = layer(x)
    before.square().mean().backward()
    for name, parameter in layer.named_parameters():
        assert parameter.grad.abs().sum() > 0, name
    if own:
        with torch.no_grad():
            for parameter in layer.decay.orders[1].parameters():
                parameter.sub_(1)
        assert not torch.allclose(layer(x), before, atol=1e-3)


@pytest.mark.parametrize("direction", ["forward", "reverse"])
@pytest.mark.parametrize("variant", ["lion_s", "rwkv6", "gla", "deltanet"])
def test_one_direction_along_a_path(variant, direction):
    """Walking the tokens along a path is walking the reordered tokens."""
    path = torch.randperm(9)
    plain = lion.LionAttention(16, 2, variant, direction=direction).double()
    along = lion.LionAttention(16, 2, variant, direction=direction, orders=path).double()
    along.load_state_dict(plain.state_dict())
    x, mask = torch.randn(2, 9, 16).double(), torch.rand(2, 9) > 0.3
    torch.testing.assert_close(along(x)[:, path], plain(x[:, path]))
    torch.testing.assert_close(along(x, mask)[:, path], plain(x[:, path], mask[:, path]))


def test_the_grid_is_a_square_unless_said_otherwise():
    layer = lion.LionAttention(16, 2, orders="snake")
    x = torch.randn(1, 10, 16)
    torch.testing.assert_close(layer(x), layer(x, grid=(3, 3)))
    with pytest.raises(ValueError, match="grid is 4 x 3, more than the 10 tokens there are"):
        layer(x, grid=(4, 3))
