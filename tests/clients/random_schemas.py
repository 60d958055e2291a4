"""Random JSON schemas whose values end soon."""


def text_schema(choose):
    kind = choose.randrange(6)
    if kind == 0:
        return {"type": "string", "pattern": choose.choice(
            ["^[a-c]{1,3}$", "^(ab|c.)*$", '^[^"]{2}$', r"^\d{2,4}$", r"^\w{1,5}@\w{1,5}$", r"^(\\|/)$"])}
    if kind == 1:
        return {"type": "string", "format": choose.choice(["date", "date-time", "time", "ipv4", "uuid"])}
    least = choose.randrange(4)
    return {"type": "string", "minLength": least, "maxLength": least + choose.randrange(12)}


def number_schema(choose):
    whole = choose.random() < 0.5
    least = choose.randrange(-2000, 2000) / (1 if whole else 100)
    most = least + choose.randrange(1, 3000)
    schema = {"type": "integer" if whole else "number",
              choose.choice(["minimum", "exclusiveMinimum"]): least,
              choose.choice(["maximum", "exclusiveMaximum"]): round(most, 2)}
    if not whole:  # a fraction may be as long as it likes
        schema = {"enum": [least, round(most, 2), choose.randrange(100)]}
    return schema


def random_schema(choose, depth):
    """A schema whose values end soon: texts, arrays and objects have limits."""
    kind = choose.randrange(4 if depth == 0 else 8)
    if kind == 0:
        return text_schema(choose)
    if kind == 1:
        return number_schema(choose)
    if kind == 2:
        return {"enum": choose.sample([1, -2.5, "a", 'ä"\n', None, True, [1, "x"], {"k": 0}], 3)}
    if kind == 3:
        return {"type": choose.choice(["boolean", "null"])}
    if kind == 4:
        least = choose.randrange(3)
        return {"type": "array", "items": random_schema(choose, depth - 1), "minItems": least,
                "maxItems": least + choose.randrange(3)}
    if kind == 5:
        return {"anyOf": [random_schema(choose, depth - 1) for _ in range(2)]}
    names = choose.sample(["a", "ab", "b c", "ä", "key", 'k"q'], choose.randrange(1, 5))
    return {"type": "object", "properties": {name: random_schema(choose, depth - 1) for name in names},
            "required": choose.sample(names, choose.randrange(len(names) + 1)),
            "additionalProperties": False}
