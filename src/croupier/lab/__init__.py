"""RAISE. A real Kubernetes on one machine: etcd, kube-apiserver, scheduler, KWOK, kubelet."""
