"""Graphs and sessions of TensorFlow 1: placeholders, variables, an optimizer of `tf.compat.v1.train`."""

import numpy as np
import tensorflow.compat.v1 as tf

rng = np.random.default_rng(0)
data = rng.normal(size=(64, 4)).astype("float32")
target = data @ np.array([[1.0], [-2.0], [0.5], [3.0]], "float32") + 1.0

graph = tf.Graph()
with graph.as_default():
    x = tf.placeholder(tf.float32, [None, 4])
    y = tf.placeholder(tf.float32, [None, 1])
    with tf.variable_scope("linear", use_resource=True):
        w = tf.get_variable("w", [4, 1], initializer=tf.zeros_initializer())
        b = tf.get_variable("b", [1], initializer=tf.zeros_initializer())
    loss = tf.reduce_mean(tf.square(tf.matmul(x, w) + b - y))
    train = tf.train.MomentumOptimizer(0.05, 0.9).minimize(loss)
    init = tf.global_variables_initializer()

config = tf.ConfigProto(allow_soft_placement=True)
config.gpu_options.allow_growth = True
losses = []
with tf.Session(graph=graph, config=config) as session:
    session.run(init)
    for _ in range(20):
        losses.append(float(session.run([loss, train], {x: data, y: target})[0]))
