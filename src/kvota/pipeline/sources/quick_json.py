"""Leaves out of a line's JSON what nobody asks for, before it is parsed: nearly half of a Produce or a Fetch. Pure.

A quote within a JSON text is written with a backslash, so what is searched for here stands in none: it is always a key.
"""

_HEADER = b'"requestHeader":{"requestApiKey":'
_PRODUCE, _FETCH = b"0,", b"1,"
_RESPONSE, _THROTTLE = b',"response":{', b'"throttleTimeMs":'
_TOPICS, _END_OF_REQUEST = b',"topics":[', b'},"response":{'
# Within so many bytes the header begins.
_HEADER_WITHIN = 64


def needed_json(text: bytes, begin: int) -> bytes:
    """Return the JSON of a line, without what a Produce's answer and a Fetch's request say of partitions.

    Args:
        text: the line.
        begin: of its JSON.
    """
    end = text.rfind(b"}") + 1
    key = text.find(_HEADER, begin, begin + _HEADER_WITHIN) + len(_HEADER)
    if text.startswith(_PRODUCE, key):
        answer = text.find(_RESPONSE, key)
        throttle = text.find(_THROTTLE, answer) if answer >= 0 else -1
        if throttle >= 0:
            return text[begin : answer + len(_RESPONSE)] + text[throttle:end]
    elif text.startswith(_FETCH, key):
        topics = text.find(_TOPICS, key)
        answer = text.find(_END_OF_REQUEST, topics) if topics >= 0 else -1
        if answer >= 0:
            return text[begin:topics] + text[answer:end]
    return text[begin:end]
