import lightning as L

trainer = L.Trainer(accelerator="gpu", devices=8, num_nodes=2)
