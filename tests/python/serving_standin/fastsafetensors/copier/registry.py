_copier_registry = {}


def register_copier_constructor(copier_type):
    def decorator(factory_func):
        _copier_registry[copier_type] = factory_func
        return factory_func

    return decorator


def create_copier_constructor(copier_type, device, **kwargs):
    if copier_type not in _copier_registry:
        raise KeyError(copier_type)
    return _copier_registry[copier_type](device, **kwargs)
