"""The kubelet's messages, as far as we use them: generated from the .proto files beside them, never edited.

The kubelet calls every one of its files api.proto, and protobuf refuses two files of one name in a
process, so each has a name of its own here. The calls themselves are in node/kubelet/calls.py.
"""
