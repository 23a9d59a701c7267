from berth.torch.elastic.sampler import ElasticSampler  # noqa: F401
