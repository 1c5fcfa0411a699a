"""The kubelet's messages, generated from the .proto files in this folder. Do not edit them.

The kubelet names all its files api.proto, and protobuf refuses two files with the same name in a process, so
they have distinct names here. The calls themselves are in node/kubelet/grpc_calls.py.
"""
