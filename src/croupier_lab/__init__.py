"""A Kubernetes cluster on one machine: etcd, kube-apiserver, scheduler, KWOK, kubelet."""
