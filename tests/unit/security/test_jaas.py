import pytest

from millstream.model.errors import ConfigError
from millstream.security.jaas import (
    PLAIN_MODULE,
    parse_jaas,
    parse_one_module,
)


def test_a_broker_s_users_are_options_that_begin_with_user() -> None:
    (module,) = parse_jaas(
        f"{PLAIN_MODULE} required\n"
        '  username="admin" password="admin-secret"\n'
        '  user_admin="admin-secret" user_ann="a b;c=d/e" user_=\'nobody\';'
    )
    assert module.name == PLAIN_MODULE
    assert module.control_flag == "required"
    assert module.options["username"] == "admin"
    assert module.users == {"admin": "admin-secret", "ann": "a b;c=d/e", "": "nobody"}


def test_values_need_no_quotes() -> None:
    module = parse_one_module("s", f"{PLAIN_MODULE} Required username=ann password=s3cret;")
    assert module.control_flag == "required"
    assert dict(module.options) == {"username": "ann", "password": "s3cret"}


def test_quotes_have_java_s_escapes() -> None:
    text = r"""x required a="say \"hi\"" b='it\'s' c="back\\slash" d="\101\t" e="q\z";"""
    module = parse_one_module("s", text)
    assert list(module.options.values()) == ['say "hi"', "it's", "back\\slash", "A\t", "qz"]


def test_comments_and_slashes() -> None:
    module = parse_one_module("s", 'x required // one\n a=1 /* two;\n */ b="1//2" / three\n c=3;')
    assert dict(module.options) == {"a": "1", "b": "1//2", "c": "3"}


def test_several_modules_are_read_and_refused_where_one_belongs() -> None:
    text = "x required a=1; y optional;"
    assert [each.name for each in parse_jaas(text)] == ["x", "y"]
    with pytest.raises(ConfigError, match="contains 2 login modules, should be 1 module"):
        parse_one_module("plain.sasl.jaas.config", text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "  // nothing",
        ";",
        "x",
        "x =",
        "x sometimes a=hunter2;",
        "x required",
        "x required password=hunter2",
        'x required password="hunter2;',
        'x required password="hunter2\n";',
        "x required password hunter2;",
        "x required hunter2;",
        "x required password=;",
        "x required =hunter2;",
        'x required password="hun"ter2;',
    ],
)
def test_errors_show_nothing_of_the_text(text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_one_module("plain.sasl.jaas.config", text)
    assert str(caught.value).startswith("plain.sasl.jaas.config: ")
    assert "hun" not in str(caught.value)


def test_a_module_s_text_has_no_options() -> None:
    assert "hunter2" not in repr(parse_jaas("x required password=hunter2;"))


def test_a_long_text_is_read_at_once() -> None:
    options = " ".join(f'user_{number}="password {number}"' for number in range(20_000))
    assert len(parse_one_module("s", f"x required {options};").users) == 20_000
    with pytest.raises(ConfigError):
        parse_jaas("x required a=" + '"\\' * 100_000)
