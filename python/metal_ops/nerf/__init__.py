"""Neural radiance fields with hash encoding: scenes, model, training, pictures."""
