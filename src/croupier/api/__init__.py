"""Wire types of Croupier's kinds and of the Kubernetes kinds it reads. CRDs are generated from them."""
