from transformers import Trainer, TrainingArguments


class MyTrainer(Trainer):
    pass


MyTrainer(args=TrainingArguments("out")).train()
